//go:build testkind

package diff

import "inferplan/formats"

// Echoes compares how many services two plans serve.
func Echoes(a, b *formats.Plan, r *Recorder) {
	r.section = "echo"
	count := func(p *formats.Plan) int { return len(p.Section.(*formats.EchoPlan).Services) }
	r.addCount("services", count(a), count(b), neutral)
}
