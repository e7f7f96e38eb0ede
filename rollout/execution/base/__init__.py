"""What every stage of acting has at hand: deadlines and patience, the guard, the wish to stop, reports, live views."""
