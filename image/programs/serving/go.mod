module rayside.dev/programs/serving

go 1.25
