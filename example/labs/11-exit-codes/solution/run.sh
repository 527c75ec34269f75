# Runs ends.py, keeps what it printed in a file, and shows it.
python ends.py "$1" >output.txt 2>&1
code=$?
cat output.txt
exit $code
