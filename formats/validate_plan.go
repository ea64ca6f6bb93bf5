package formats

// Validate checks what the types of a plan cannot say and returns all
// findings, each with its field path.
func (d *Plan) Validate() error {
	var c checker
	c.header(d, d.Format, FormatPlan)
	return c.err()
}
