package formats

import (
	"strings"
	"testing"

	"inferplan/formats/document"
)

// Figures out of range are bad input, with their field and what may stand there.
func TestFiguresOutOfRange(t *testing.T) {
	cascade := `{"format":"inferplan.workload/v1","cascade":{"family":["a"],"slo":{"latency":"1s"},"qps":{"max":MAX,"ranges":RANGES,"distribution":"zipf"}}}`
	for _, c := range []struct{ name, text, field, expected string }{
		{"ranges", strings.NewReplacer("MAX", "10", "RANGES", "9223372036854775807").Replace(cascade), "cascade.qps.ranges", "1 to 1000"},
		{"no range", strings.NewReplacer("MAX", "10", "RANGES", "0").Replace(cascade), "cascade.qps.ranges", "1 to 1000"},
		{"rate of a cascade", strings.NewReplacer("MAX", "5e-324", "RANGES", "2").Replace(cascade), "cascade.qps.max", "a rate of 1e-06 or more"},
		{"rate of an application", `{"format":"inferplan.workload/v1","applications":[{"name":"a","slo":"1s","rps":1e-300,"modules":["m"]}]}`, "applications[0].rps", "0, or 1e-06 to 1e+09"},
		{"elements of a tensor", `{"format":"inferplan.profile/v1","devices":[{"device":"L4"}],"models":[{"model":"m","inputs":[{"name":"x","dtype":"FP32","shape":[-1,1000000000000]}],"outputs":[],"blocks":[{"name":"b"}],"measurements":[]}]}`,
			"models[0].inputs[0].shape", "at most 1073741824"},
	} {
		_, _, err := Decode([]byte(c.text), "x.json")
		found := false
		for _, f := range document.Findings(err) {
			found = found || f.Path == c.field && f.Expected == c.expected
		}
		if !found {
			t.Errorf("%s: %v, expected a finding at %s: %s", c.name, err, c.field, c.expected)
		}
	}
}
