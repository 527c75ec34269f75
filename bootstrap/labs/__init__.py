"""Labs: small lessons under `example/labs/`, each with an exercise that is checked."""
