package formats

// Validate checks what the types of a workload cannot say and returns all
// findings, each with its field path.
func (d *Workload) Validate() error {
	var c checker
	c.header(d, d.Format, FormatWorkload)
	return c.err()
}
