package sim

import (
	"context"
	"slices"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/policy"
	"inferplan/policy/balance"
)

// runBalanced runs requests on one instance behind a balancer.
func runBalanced(t *testing.T, tables *policy.Tables, list []arrivals.Request) *Result {
	t.Helper()
	res, err := Run(context.Background(), Config{Tables: tables, Policy: balance.New(tables), Source: arrivals.Slice(list), Verify: true})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// TestEachFigureIsJudged: a request is in time by the figure that its SLO is of, and
// by how long it waited; the report has the figure at the percentile.
func TestEachFigureIsJudged(t *testing.T) {
	list := drawnRequests(200, 6, 1, 4)
	slices.SortFunc(list, func(a, b arrivals.Request) int { return int(a.ArrivedAt - b.ArrivedAt) })
	// One after the other: those behind wait.
	for _, c := range []struct {
		of      string
		slo     time.Duration
		waiting time.Duration
		some    bool // some are late, and some are not
	}{
		{formats.FigureE2E, 20 * time.Second, 0, true},
		{formats.FigureTTFT, 20 * time.Second, 0, true},
		{formats.FigureTPOT, 14 * time.Millisecond, 0, true},
		{formats.FigureTPOT, time.Second, 0, false},
		{formats.FigureTPOT, time.Second, 20 * time.Second, true},
		{formats.FigureE2E, time.Hour, 20 * time.Second, true},
	} {
		tables := instanceTables(1, 100_000, 2, policy.Model{Name: "a", Class: "x", SLO: c.slo, SLOFigure: c.of, WaitSLO: c.waiting, Percentile: 0.9})
		res := runBalanced(t, tables, list)
		k := &res.Report.Classes[0]
		if late := res.Report.Late; c.some != (late > 0 && late < int64(len(list))) {
			t.Errorf("%+v: %d of %d are late", c, late, len(list))
		}
		if k.Figure != c.of || k.SLOUS.D() != c.slo || k.Percentile != "p90" || k.WaitingSLOUS.D() != c.waiting {
			t.Errorf("%+v: the report says %+v", c, *k)
		}
		// At least nine of ten are in time just where the figures at the percentile are.
		met := k.AtPercentileUS.D() <= c.slo && (c.waiting == 0 || k.WaitingAtPercentileUS.D() <= c.waiting)
		if c.waiting == 0 && met != (k.Attainment >= 0.9) {
			t.Errorf("%+v: %.3f are in time, the figure is %v at the percentile", c, k.Attainment, k.AtPercentileUS.D())
		}
		if most := max(k.E2EP99US, k.TTFTP99US); c.waiting > 0 && (k.WaitingAtPercentileUS == 0 || k.WaitingAtPercentileUS > most) {
			t.Errorf("%+v: waiting %v at the percentile", c, k.WaitingAtPercentileUS.D())
		}
	}
}

// TestClassOfSeveralSLOs has no figure at a percentile.
func TestClassOfSeveralSLOs(t *testing.T) {
	tables := instanceTables(1, 100_000, 8, policy.Model{Name: "a", Class: "x", SLO: time.Second, Percentile: 0.9}, policy.Model{Name: "b", Class: "x", SLO: time.Minute, Percentile: 0.9})
	if k := runBalanced(t, tables, drawnRequests(20, 1, 2, 1)).Report.Classes[0]; k.Figure != "" || k.AtPercentileUS != 0 || k.Requests != 20 {
		t.Errorf("%+v", k)
	}
}
