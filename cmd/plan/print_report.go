package main

import (
	"fmt"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/pages"
	"inferplan/planner/explain"
)

// writeReport writes a report to a file, if one is named. It prints its warnings and then doc, which contains the
// report, as JSON or as tables.
func (p *printer) writeReport(path string, rep *formats.Report, warnings []string, doc any) error {
	if path != "" {
		if err := p.SaveDocument(path, rep); err != nil {
			return err
		}
	}
	p.printWarnings(warnings)
	if p.json {
		return p.PrintJSON(doc)
	}
	return printReport(p, rep)
}

// printReport prints the results of a run, simulated or served.
func printReport(p *printer, rep *formats.Report) error {
	// A row for every model.
	var rows [][]string
	for _, m := range rep.Models {
		row := []string{
			m.Key().String(), formatRate(m.OfferedRPS), fmt.Sprint(m.Requests), pages.Attainment(m.Attainment, m.Requests), formatInterval(m.AttainmentCI), fmt.Sprint(m.Dropped),
			fmt.Sprint(m.Late), formatRate(m.GoodputRPS), pages.Latency(m.Latency.P50US, m.Requests), pages.Latency(m.Latency.P99US, m.Requests), formatSLO(&m, &rep.TokenReport),
		}
		if m.MaxLoadFactor != nil {
			row = append(row, fmt.Sprintf("%.2f", *m.MaxLoadFactor))
		}
		rows = append(rows, row)
	}
	if len(rep.Curve) > 0 { // of several loads
		fmt.Fprintf(p.out, "at load %.4g:\n", rep.Load)
	}
	p50, p99 := latencyHeaders(rep)
	header := []string{"model", "offered rps", "requests", "attainment", "95 % interval", "dropped", "late", "goodput", p50, p99, "SLO ms"}
	if rep.MaxLoadFactor != nil {
		header = append(header, "max load")
	}
	if err := p.PrintTable("lrrrrrrrrrrr", header, rows); err != nil {
		return err
	}

	// Tables of single kinds of reports.
	if err := printPlans(p, rep.Plans); err != nil {
		return err
	}
	if err := printCurve(p, rep.Curve); err != nil {
		return err
	}
	if err := printClasses(p, &rep.TokenReport); err != nil {
		return err
	}

	// Lines about devices, loads and accuracy.
	var devices []string
	for _, d := range rep.Devices {
		devices = append(devices, fmt.Sprintf("%d x %s %s", d.Count, d.Device, formatPercent(d.Utilisation)))
	}
	if len(devices) > 0 {
		fmt.Fprintln(p.out, "utilisation:", joinList(devices))
	}
	if w, d := rep.Workflow, rep.DeviceTime; w != nil && d != nil {
		fmt.Fprintf(p.out, "loads: %.1f per minute; mean batch %.2f; device time %s running, %s loading, %s both, %s idle\n",
			w.LoadsPerMinute, w.Batch, formatPercent(d.Running), formatPercent(d.Loading), formatPercent(d.RunningAndLoading), formatPercent(d.Idle))
		if err := printGenerations(p, w); err != nil {
			return err
		}
	}
	for _, line := range slowdownLines(rep) {
		fmt.Fprintln(p.out, line)
	}
	if rep.Accuracy != nil {
		fmt.Fprintf(p.out, "accuracy by the plan's records: %.4f\n", *rep.Accuracy)
	}
	if rep.MaxLoadFactor != nil {
		fmt.Fprintf(p.out, "highest load at which every model attains: %.2f\n", *rep.MaxLoadFactor)
	}
	return nil
}

// slowdownLines returns lines about the latencies of a report when runs take longer than profiled.
func slowdownLines(rep *formats.Report) []string {
	models := make([]explain.LatencyReport, len(rep.Models))
	for i := range rep.Models {
		m := &rep.Models[i]
		models[i] = explain.LatencyReport{Key: m.Key(), P50US: m.Latency.P50US, P99US: m.Latency.P99US, Slowdowns: m.Slower}
	}
	return explain.SlowdownLines(models)
}

// printPlans prints the results of each of several plans of a server.
func printPlans(p *printer, plans []formats.PlanReport) error {
	if len(plans) == 0 {
		return nil
	}
	var rows [][]string
	for i := range plans {
		r := &plans[i]
		rows = append(rows, []string{r.SHA256[:min(12, len(r.SHA256))], r.Kind, r.Policy, fmt.Sprintf("%.1f", r.StartUS.D().Seconds()), fmt.Sprintf("%.1f", r.DurationUS.D().Seconds()), fmt.Sprint(r.Requests), pages.Attainment(r.Attainment, r.Requests), fmt.Sprint(r.Dropped), fmt.Sprint(r.Late), formatRate(r.GoodputRPS), pages.Latency(r.Latency.P99US, r.Requests)})
	}
	return p.PrintTable("lllrrrrrrrr", []string{"plan", "kind", "policy", "from s", "for s", "requests", "attainment", "dropped", "late", "goodput", "p99 ms"}, rows)
}

// printGenerations prints the figures of the language models of workflows, and of each module that uses one.
func printGenerations(p *printer, w *formats.WorkflowReport) error {
	for i := range w.Generations {
		g := &w.Generations[i]
		fmt.Fprintf(p.out, "%s: %.1f tokens/s; %.2f sequences at once; at most %d of %d tokens of KV memory, %d sequences preempted\n",
			g.Model, g.TokensPerSecond, g.MeanRunning, g.PeakKVTokens, g.KVTokens, g.Preempted)
	}
	if len(w.Segments) == 0 {
		return nil
	}
	var rows [][]string
	for i := range w.Segments {
		s := &w.Segments[i]
		rows = append(rows, []string{s.Application, s.Segment, s.Module, s.Model, fmt.Sprint(s.Sequences), document.FormatMillis(s.TTFTP50US.D()), document.FormatMillis(s.TTFTP99US.D()), document.FormatMillis(s.TPOTP50US.D()), document.FormatMillis(s.TPOTP99US.D())})
	}
	return p.PrintTable("llllrrrrr", []string{"application", "segment", "module", "model", "sequences", "ttft p50 ms", "ttft p99 ms", "tpot p50 ms", "tpot p99 ms"}, rows)
}

// printCurve shows what every model attained at several loads.
func printCurve(p *printer, curve []formats.LoadReport) error {
	if len(curve) == 0 {
		return nil
	}
	fmt.Fprintln(p.out, "requests in time at every load:")
	header := []string{"load", "all"}
	for _, m := range curve[0].Models {
		header = append(header, formats.ModelClass{Model: m.Model, Class: m.Class}.String())
	}
	var rows [][]string
	for _, l := range curve {
		// A model whose requests are all in time and took none had none: the curve has no counts.
		row, requests := []string{fmt.Sprintf("%.4g", l.Load), ""}, int64(0)
		for _, m := range l.Models {
			text := "-"
			if m.Attainment < 1 || m.P99US > 0 {
				requests, text = 1, formatPercent(m.Attainment)+" "+formatInterval(m.AttainmentCI)
			}
			row = append(row, text)
		}
		row[1] = pages.Attainment(l.Attainment, requests)
		rows = append(rows, row)
	}
	return p.PrintTable(strings.Repeat("r", len(header)), header, rows)
}

func formatInterval(ci *[2]float64) string {
	if ci == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f..%.2f", 100*ci[0], 100*ci[1])
}
