package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/pages"
)

// newReportCommand makes the verb report, which prints reports side by side, the first as the reference.
func newReportCommand(g *globalFlags) *cobra.Command {
	var attainment float64
	o := &reportOptions{}
	cmd := &cobra.Command{
		Use:   "report REPORT...",
		Short: "Show reports side by side: promised against measured",
		Long: `Show reports of simulate, serve and load side by side, the first as the reference.

Each row is a model in one report; the differences are against the first report. The last
lines say which models miss the attainment, and where a latency is not what was promised.

--html writes a page for a browser: one file, which loads nothing. It shows what runs where, load
against attainment, latencies with their SLO, and, from what plan simulate and plan load write
beside a report (--chrome-trace, --outcomes), devices, queues and gears over time.

--fail-if is a condition in Google's CEL over the figures of one model in one report: model,
class, report, ` + joinList(reportFigureNames()) + `.
The same with first. before it is of the first report. It is tested for every model of every
report, and for all models of a report together, whose model is "" and whose slo_ms is the largest.

Exit code 1: with --attainment, a model of a report is below it; or a --fail-if holds.`,
		Example: `  plan report report.json
  plan report promised.json measured.json
  plan report promised.json measured.json --attainment 0.99
  plan report promised.json measured.json --html report.html --outcomes promised.csv --outcomes measured.csv
  plan report promised.json measured.json --fail-if 'p99_ms > 1.2 * first.p99_ms' --format markdown`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p := newPrinter(cmd, g)
			if err := o.check(p, len(args)); err != nil {
				return err
			}
			var reports []*formats.Report
			for _, path := range args {
				r, err := formats.ReadReport(path)
				if err != nil {
					return withCode(exitUsage, err)
				}
				reports = append(reports, r)
			}
			for i, r := range reports {
				if r.Interrupted {
					p.PrintNote("note: %s: interrupted; it is of what was complete until then", args[i])
				}
			}
			if err := checkTypedShare("attainment", attainment, cmd.Flags().Changed("attainment")); err != nil {
				return err
			}
			conditionLines, err := o.metConditions(args, reports)
			if err != nil {
				return err
			}
			missedLines := missedTargets(args, reports, attainment)
			notes := slices.Concat(missedLines, medianWarnings(args, reports), slowdownLines(reports[0]))
			if err := o.showReports(p, args, reports, slices.Concat(conditionLines, notes)); err != nil {
				return err
			}
			for _, line := range conditionLines {
				p.PrintNote("%s", paintFailure(p.err, line))
			}
			for _, line := range notes {
				p.PrintNote("%s", line)
			}
			if len(conditionLines) > 0 || cmd.Flags().Changed("attainment") && len(missedLines) > 0 {
				return &exitError{code: exitGate}
			}
			return nil
		},
	}
	cmd.Flags().Float64Var(&attainment, "attainment", 0, "share of requests in time that every model must reach; if it is given, exit 1 for a model that misses it (default that of its percentile, as a simulation has it, else 0.99)")
	o.flags(cmd)
	return cmd
}

// missedTargets returns a line for each model of each report whose attainment is too low. If attainment is 0, each
// model has to reach its percentile, as the first report that has it says. attainment is a share from 0 to 1. names
// are the reports' files.
func missedTargets(names []string, reports []*formats.Report, attainment float64) (out []string) {
	for j, r := range reports {
		for i := range r.Models {
			m := &r.Models[i]
			minAttainment := attainment
			if minAttainment == 0 {
				minAttainment = shareOf(reports, m.Key())
			}
			if m.Requests > 0 && m.Attainment < minAttainment {
				out = append(out, fmt.Sprintf("%s: %s answered %s in time, below %s", reportName(names[j]), m.Key(), formatPercent(m.Attainment), formatPercent(minAttainment)))
			}
		}
	}
	return out
}

// shareOf returns the share of a model's requests that has to be in time.
func shareOf(reports []*formats.Report, key formats.ModelClass) float64 {
	for _, r := range reports {
		if m := findModel(r, key); m != nil && m.Percentile != "" {
			return document.ShareAt(m.Percentile)
		}
	}
	return document.ShareAt("")
}

// driftShare is the relative difference from which on a median is not the promised one.
const driftShare = 0.2

// medianWarnings returns a line for each model of a measured report whose median latency differs from that of the first
// report. It is for a difference of more than driftShare, which hints at a machine that is slower or faster than its
// profile. Simulated reports have no machine.
func medianWarnings(names []string, reports []*formats.Report) (out []string) {
	for j, r := range reports[1:] {
		if r.Source == "simulate" {
			continue
		}
		for i := range r.Models {
			m := &r.Models[i]
			reference := findModel(reports[0], m.Key())
			if reference == nil || reference.Latency.P50US == 0 || m.Latency.P50US == 0 { // nothing was answered
				continue
			}
			deviation := float64(m.Latency.P50US)/float64(reference.Latency.P50US) - 1
			if math.Abs(deviation) <= driftShare {
				continue
			}
			side := "above"
			if deviation < 0 {
				side = "below"
			}
			out = append(out, fmt.Sprintf("%s: the median of %s is %.0f %% %s that of %s. To see whether the speed of the machine changed: plan serve --record s.json, then plan simulate --service s.json",
				reportName(names[j+1]), m.Key(), 100*math.Abs(deviation), side, reportName(names[0])))
		}
	}
	return out
}

// comparisonTable has the same model of each report in neighbouring rows. Differences are against the first report;
// names are the files.
func comparisonTable(names []string, reports []*formats.Report) pages.Table {
	reference := reports[0]
	var rows [][]string
	row := func(label, name, slo string, c formats.Counts, l formats.LatencySummary, rps float64, ref *formats.LatencySummary, refAtt float64) {
		diff50, diff99, diffAtt := "", "", ""
		if ref != nil {
			diff50, diff99 = relativeTime(float64(l.P50US), float64(ref.P50US)), relativeTime(float64(l.P99US), float64(ref.P99US))
			diffAtt = fmt.Sprintf("%+.2f pt", 100*(c.Attainment-refAtt))
		}
		rows = append(rows, []string{
			label, name, formatRate(rps), fmt.Sprint(c.Requests), pages.Attainment(c.Attainment, c.Requests), diffAtt,
			fmt.Sprint(c.Dropped), fmt.Sprint(c.Late), pages.Latency(l.P50US, c.Requests), diff50, pages.Latency(l.P99US, c.Requests), diff99, slo,
		})
	}

	// If there are several models, the first rows sum up all of them.
	keys := pages.ModelClasses(reports)
	if len(keys) > 1 {
		for j, r := range reports {
			label, ref := "all", (*formats.LatencySummary)(nil)
			if j > 0 {
				label, ref = "", &reference.Latency
			}
			offeredRate := 0.0
			for i := range r.Models {
				offeredRate += r.Models[i].OfferedRPS
			}
			row(label, reportName(names[j]), "", r.Counts, r.Latency, offeredRate, ref, reference.Attainment)
		}
	}

	// Then every model has a row for each report.
	for _, key := range keys {
		m := findModel(reference, key)
		label := key.String()
		for j, r := range reports {
			x := findModel(r, key)
			if x == nil {
				continue
			}
			slo := ""
			if x.SLOUS > 0 {
				slo = formatSLO(x, &r.TokenReport)
			}
			if j > 0 && m != nil {
				row(label, reportName(names[j]), slo, x.Counts, x.Latency, x.OfferedRPS, &m.Latency, m.Attainment)
			} else {
				row(label, reportName(names[j]), slo, x.Counts, x.Latency, x.OfferedRPS, nil, 0)
			}
			label = "" // the rows below are of the same model
		}
	}
	p50, p99 := latencyHeaders(reports...)
	return pages.Table{Align: "llrrrrrrrrrrr", Header: []string{
		"model", "report", "offered rps", "requests", "attainment", "", "dropped", "late", p50, "", p99, "", "SLO ms",
	}, Rows: rows}
}

// findModel returns the entry of a model and class in a report, or nil.
func findModel(r *formats.Report, key formats.ModelClass) *formats.ModelReport {
	for i := range r.Models {
		if r.Models[i].Key() == key {
			return &r.Models[i]
		}
	}
	return nil
}

// relativeTime returns the difference of a latency from a reference. It is empty if either is 0, as nothing was answered.
func relativeTime(v, ref float64) string {
	if v == 0 || ref == 0 {
		return ""
	}
	return fmt.Sprintf("%+.1f %%", 100*(v/ref-1))
}

func reportName(path string) string {
	name := path[strings.LastIndexByte(path, '/')+1:]
	return strings.TrimSuffix(name, ".json")
}
