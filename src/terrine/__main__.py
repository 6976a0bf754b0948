from terrine.cli import main

main()
