"""Rules from measurements: what honest engines differ by, and thresholds that honest work hardly ever breaks."""
