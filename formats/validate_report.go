package formats

// Validate checks what the types of a report cannot say and returns all
// findings, each with its field path.
func (d *Report) Validate() error {
	var c checker
	c.header(d, d.Format, FormatReport)
	return c.err()
}
