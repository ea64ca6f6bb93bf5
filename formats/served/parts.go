package served

// Part shows what a kind of plan has beside the others.
type Part interface {
	// PlanKind returns the kind's name.
	PlanKind() string
	// Tables returns the part for people.
	Tables() []Table
	// Gauge returns the one number that is drawn over time, with its title. If the kind has none, the title is empty.
	Gauge() (title string, value float64)
}

// Table is a table of texts. Align has a letter per column: 'r' aligns to the right.
type Table struct {
	Title, Text string
	Align       string
	Header      []string
	Rows        [][]string
}
