/* Smooths the readings of a gauge: each becomes the mean of itself and its neighbours. */
#include <stdlib.h>

/* Returns the mean of values[at - width .. at + width], of those that exist. */
static double mean(const double *values, long count, long at, long width)
{
    double sum = 0;
    long number = 0;
    for (long each = at - width; each <= at + width; each++)
        if (each >= 0 && each <= count) {
            sum += values[each];
            number++;
        }
    return sum / number;
}

/* Smooths `count` values in place. A gauge that was broken has none: NULL, and no count of them. */
void smooth(double *values, long count, long width)
{
    double *smoothed = malloc(count * sizeof *smoothed);
    for (long at = 0; at < count; at++)
        smoothed[at] = mean(values, count, at, width);
    for (long at = 0; at < count; at++)
        values[at] = smoothed[at];
}
