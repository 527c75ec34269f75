module rayside.dev/programs/pause

go 1.25
