package formats

// Validate checks what the types of a profile cannot say and returns all
// findings, each with its field path.
func (d *Profile) Validate() error {
	var c checker
	c.header(d, d.Format, FormatProfile)
	return c.err()
}
