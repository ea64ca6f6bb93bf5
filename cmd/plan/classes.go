package main

import (
	"cmp"
	"fmt"
	"slices"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/pages"
)

// printClasses prints the classes of requests to language models, and the figures of their instances.
func printClasses(p *printer, t *formats.TokenReport) error {
	if len(t.Classes) == 0 {
		return nil
	}
	var rows [][]string
	for _, k := range t.Classes {
		rows = append(rows, []string{cmp.Or(k.Class, "-"), fmt.Sprint(k.Requests), pages.Attainment(k.Attainment, k.Requests), pages.Latency(k.E2EP99US, k.Requests), pages.Latency(k.TTFTP99US, k.Requests), pages.Latency(k.TPOTP99US, k.Requests), askedOf(&k)})
	}
	if err := p.PrintTable("lrrrrrl", []string{"class", "requests", "attainment", "e2e p99 ms", "TTFT p99 ms", "TPOT p99 ms", "asked"}, rows); err != nil {
		return err
	}
	if t.Swaps != nil && t.Loads != nil && t.Evictions != nil {
		fmt.Fprintf(p.out, "%s, %s, %s\n", document.CountOf(int(*t.Swaps), "model swap"), document.CountOf(int(*t.Loads), "load"), document.CountOf(int(*t.Evictions), "eviction"))
	}
	if t.PrefixHits != nil && *t.PrefixHits > 0 {
		fmt.Fprintf(p.out, "prefix cache: %s of the prompts' tokens\n", formatPercent(*t.PrefixHits))
	}
	if d := t.DeviceTime; d != nil {
		fmt.Fprintf(p.out, "device time: running %s, loading %s, idle %s\n", formatPercent(d.Running), formatPercent(d.Loading), formatPercent(d.Idle))
	}
	return nil
}

// figureNames are the names of what SLOs of language models bound, in tables.
var figureNames = map[string]string{formats.FigureE2E: "e2e", formats.FigureTTFT: "TTFT", formats.FigureTPOT: "TPOT"}

// formatSLO writes the SLO of a model in milliseconds, with what it bounds if that is no whole answer.
func formatSLO(m *formats.ModelReport, t *formats.TokenReport) string {
	slo := document.FormatMillis(m.SLOUS.D())
	if figure := t.FigureOf(m.Class); figure != "" {
		return slo + " " + figureNames[figure]
	}
	return slo
}

// latencyHeaders returns the headers of the columns p50 and p99, which are of whole answers. Beside SLOs of other
// figures they say so.
func latencyHeaders(reports ...*formats.Report) (p50, p99 string) {
	isOfTokens := func(c formats.ClassReport) bool { return c.Figure != formats.FigureE2E && c.Figure != "" }
	if slices.ContainsFunc(reports, func(r *formats.Report) bool { return slices.ContainsFunc(r.Classes, isOfTokens) }) {
		return "e2e p50 ms", "e2e p99 ms"
	}
	return "p50 ms", "p99 ms"
}

// askedOf returns the SLO of a class beside the value that it attained, as text.
func askedOf(k *formats.ClassReport) string {
	if k.Figure == "" {
		return ""
	}
	text := fmt.Sprintf("%s %s: %s of %s ms", figureNames[k.Figure], k.Percentile, pages.Latency(k.AtPercentileUS, k.Requests), document.FormatMillis(k.SLOUS.D()))
	if k.WaitingSLOUS > 0 {
		text += fmt.Sprintf(", waiting %s of %s ms", pages.Latency(k.WaitingAtPercentileUS, k.Requests), document.FormatMillis(k.WaitingSLOUS.D()))
	}
	return text
}
