"""What answers cost: Rényi curves, the theorems behind them, worst cases and planning."""
