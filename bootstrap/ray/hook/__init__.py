"""What `submit --debug` sends along with a job: the package `rayside_hook`, which runs inside Ray."""
