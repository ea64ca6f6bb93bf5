//go:build testkind

package diff

import "inferplan/formats"

// Echoes compares how many services two plans serve.
func Echoes(a, b *formats.Plan, r *Recorder) {
	r.section = "echo"
	r.count("services", len(a.Served()), len(b.Served()), neutral)
}
