package pages

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
)

// Row is the figures of one model in one report, or of all its models together.
type Row struct {
	Report string
	formats.ModelClass
	SLO        document.Micros
	OfferedRPS float64
	formats.Counts
	Latency formats.LatencySummary
}

// Figures are the figures of a row that conditions and CSV files name, in the order of columns.
var Figures = []struct {
	Name    string
	ValueOf func(r *Row) float64
}{
	{"offered_rps", func(r *Row) float64 { return r.OfferedRPS }},
	{"goodput_rps", func(r *Row) float64 { return r.GoodputRPS }},
	{"requests", func(r *Row) float64 { return float64(r.Requests) }},
	{"completed", func(r *Row) float64 { return float64(r.Completed) }},
	{"dropped", func(r *Row) float64 { return float64(r.Dropped) }},
	{"late", func(r *Row) float64 { return float64(r.Late) }},
	{"attainment", func(r *Row) float64 { return r.Attainment }},
	{"mean_ms", func(r *Row) float64 { return millis(r.Latency.MeanUS) }},
	{"p50_ms", func(r *Row) float64 { return millis(r.Latency.P50US) }},
	{"p90_ms", func(r *Row) float64 { return millis(r.Latency.P90US) }},
	{"p95_ms", func(r *Row) float64 { return millis(r.Latency.P95US) }},
	{"p99_ms", func(r *Row) float64 { return millis(r.Latency.P99US) }},
	{"max_ms", func(r *Row) float64 { return millis(r.Latency.MaxUS) }},
	{"slo_ms", func(r *Row) float64 { return millis(r.SLO) }},
}

func millis(t document.Micros) float64 { return t.D().Seconds() * 1e3 }

// Rows returns the figures of a report: first those of all models together, with an empty name of the model and the largest SLO,
// then each model's.
func Rows(name string, r *formats.Report) []Row {
	all := Row{Report: name, Counts: r.Counts, Latency: r.Latency}
	rows := []Row{all}
	for i := range r.Models {
		m := &r.Models[i]
		rows[0].OfferedRPS += m.OfferedRPS
		rows[0].SLO = max(rows[0].SLO, m.SLOUS)
		rows = append(rows, Row{name, m.Key(), m.SLOUS, m.OfferedRPS, m.Counts, m.Latency})
	}
	return rows
}

// ModelClasses returns the models of reports, each once, in the order of the reports.
func ModelClasses(reports []*formats.Report) (out []formats.ModelClass) {
	for _, r := range reports {
		for i := range r.Models {
			if key := r.Models[i].Key(); !slices.Contains(out, key) {
				out = append(out, key)
			}
		}
	}
	return out
}

// WriteCSV writes the figures of reports as CSV, a line for all models of a report and one for each model.
func WriteCSV(w io.Writer, rows []Row) error {
	out := csv.NewWriter(w)
	header := []string{"report", "model", "class"}
	for _, f := range Figures {
		header = append(header, f.Name)
	}
	_ = out.Write(header) // Flush reports the error
	for i := range rows {
		cells := []string{rows[i].Report, rows[i].Model, rows[i].Class}
		for _, f := range Figures {
			cells = append(cells, strconv.FormatFloat(f.ValueOf(&rows[i]), 'g', -1, 64))
		}
		_ = out.Write(cells)
	}
	out.Flush()
	return out.Error()
}

// Sentence says what reports mean together, the first as the reference.
func Sentence(names []string, reports []*formats.Report) string {
	first := reports[0]
	if len(reports) == 1 && first.Requests == 0 {
		return fmt.Sprintf("In %s there were no requests.", names[0])
	}
	if len(reports) == 1 {
		return fmt.Sprintf("In %s, %s of %s were answered in time%s.", names[0], percent(first.Attainment), document.CountOf(int(first.Requests), "request"), intervalText(&first.Counts))
	}
	var parts []string
	for i, r := range reports[1:] {
		parts = append(parts, fmt.Sprintf("in %s it is %s (%+.2f points), %s", names[i+1], percent(r.Attainment), 100*(r.Attainment-first.Attainment), chanceText(&first.Counts, &r.Counts))+p99Text(first, r))
	}
	return fmt.Sprintf("%s has %s of its requests answered in time; %s.", names[0], percent(first.Attainment), strings.Join(parts, "; "))
}

// intervalText says how certain the attainment is.
func intervalText(c *formats.Counts) string {
	if c.AttainmentCI == nil {
		return ""
	}
	return fmt.Sprintf(" (95 %% interval: %s to %s)", percent(c.AttainmentCI[0]), percent(c.AttainmentCI[1]))
}

// chanceText says whether a difference of attainments may be chance: it may if the 95 % intervals overlap.
func chanceText(a, b *formats.Counts) string {
	switch {
	case a.AttainmentCI == nil || b.AttainmentCI == nil:
		return "without intervals that would tell chance"
	case a.AttainmentCI[0] <= b.AttainmentCI[1] && b.AttainmentCI[0] <= a.AttainmentCI[1]:
		return "which may be chance, because the 95 % intervals overlap"
	case b.Attainment < a.Attainment:
		return "which is worse by more than chance, because the 95 % intervals do not overlap"
	}
	return "which is better by more than chance, because the 95 % intervals do not overlap"
}

// p99Text compares the 99th percentiles of the latency. It is empty if a run answered nothing.
func p99Text(a, b *formats.Report) string {
	if a.Latency.P99US == 0 || b.Latency.P99US == 0 {
		return ""
	}
	change := 100 * (float64(b.Latency.P99US)/float64(a.Latency.P99US) - 1)
	word := "higher"
	if change < 0 {
		word = "lower"
	}
	return fmt.Sprintf(", and its p99 is %.1f %% %s", math.Abs(change), word)
}

// Attainment writes the share of requests in time for a table, or "-" if there were none.
func Attainment(share float64, requests int64) string {
	if requests == 0 {
		return "-"
	}
	return percent(share)
}

// Latency writes a latency of requests for a table, in milliseconds, or "-" if there were none.
func Latency(latency document.Micros, requests int64) string {
	if requests == 0 {
		return "-"
	}
	return document.FormatMillis(latency.D())
}

func percent(share float64) string { return fmt.Sprintf("%.2f %%", 100*share) }
