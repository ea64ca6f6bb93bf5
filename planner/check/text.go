package check

import "fmt"

// Text is the result for people: the verdict first, then what failed.
func (r *Result) Text() []string {
	var out []string
	failed := 0
	for _, m := range r.Metrics {
		if m.Failed {
			failed++
		}
	}
	errs := 0
	for _, f := range r.Findings {
		if f.Severity == Error {
			errs++
		}
	}
	head := r.Verdict + ": the plan holds"
	if r.Verdict == Fail {
		head = fmt.Sprintf("%s: %d constraints broken, %d figures worse than allowed", r.Verdict, errs, failed)
	}
	out = append(out, head)
	for _, f := range r.Findings {
		out = append(out, f.String())
	}
	for _, m := range r.Metrics {
		if m.Failed {
			out = append(out, fmt.Sprintf("regression: %s of %s: %.6g %s, was %.6g (%.2g %% worse, allowed %.2g %%)", m.Metric, m.What, m.New, m.Unit, m.Old, 100*m.Worse, 100*m.Tolerance))
		}
	}
	for _, b := range r.Blocks {
		out = append(out, "slower: "+b.String())
	}
	if r.Planned != nil && r.Verdict == Fail {
		out = append(out, fmt.Sprintf("planned again today: %.6g; take it with: plan solve", r.Planned.Value))
	}
	for _, n := range r.Notes {
		out = append(out, "note: "+n)
	}
	return out
}
