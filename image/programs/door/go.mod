module rayside.dev/programs/door

go 1.25
