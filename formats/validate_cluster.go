package formats

// Validate checks what the types of a cluster cannot say and returns all
// findings, each with its field path.
func (d *Cluster) Validate() error {
	var c checker
	c.header(d, d.Format, FormatCluster)
	return c.err()
}
