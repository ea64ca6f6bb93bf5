package gpucheck

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Print writes the document as text.
func (d *Document) Print(w io.Writer) {
	what := "GPU check"
	if d.Rehearsal {
		what = "Rehearsal on a CPU: no figure here is about a GPU"
	}
	fmt.Fprintf(w, "%s\n%s", what, d.Device)
	for _, s := range []string{d.Name, d.Driver, d.Engine} {
		if s != "" {
			fmt.Fprintf(w, ", %s", s)
		}
	}
	fmt.Fprintln(w)
	for i := range d.Steps {
		d.Steps[i].print(w)
	}
}

func (r *StepResult) print(w io.Writer) {
	fmt.Fprintf(w, "\n== %s: %s (%s, %.1f s)\n", r.Step, r.Title, r.Status, r.Seconds)
	if r.Error != "" {
		fmt.Fprintf(w, "error: %s\n", r.Error)
	}
	for _, v := range r.Verdicts {
		fmt.Fprintln(w, v)
	}
	for _, t := range r.Tables {
		if t.Title != "" {
			fmt.Fprintln(w, t.Title)
		}
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintf(tw, "  %s\n", strings.Join(t.Header, "\t"))
		for _, row := range t.Rows {
			fmt.Fprintf(tw, "  %s\n", strings.Join(row, "\t"))
		}
		tw.Flush()
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
}
