package sim_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/policy"
	"inferplan/policy/policies"
	"inferplan/sim"
	"inferplan/testkit/policytest"
)

const ms = time.Millisecond

// scenario makes a scenario of a plan with the invariants on.
func scenario(t testing.TB, plan *formats.Plan, load float64, d time.Duration) *sim.Scenario {
	t.Helper()
	sc, err := sim.NewScenario(plan)
	if err != nil {
		t.Fatal(err)
	}
	sc.Load, sc.Duration, sc.Verify, sc.Seed = load, d, true, 1
	return sc
}

func replicateOnce(t testing.TB, sc *sim.Scenario) *sim.Result {
	t.Helper()
	r, err := sim.Replicate(context.Background(), sc, 1)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// With exact service times no dispatched batch is late, at any load.
func TestExactTimesNeverLate(t *testing.T) {
	for _, load := range []float64{0.3, 0.95, 1.3, 3} {
		r := replicateOnce(t, scenario(t, policytest.Hundred().Plan(), load, 5*time.Second)).Report
		if r.Late != 0 {
			t.Errorf("load %.2f: %d of %d requests late", load, r.Late, r.Requests)
		}
		if r.Requests != r.Completed+r.Dropped || r.Requests == 0 {
			t.Errorf("load %.2f: %d requests, %d completed, %d dropped", load, r.Requests, r.Completed, r.Dropped)
		}
	}
}

// The same seed gives the same bytes, however many runs go at once; another
// seed gives others.
func TestReportBytesDependOnTheSeedOnly(t *testing.T) {
	report := func(procs int, seed uint64) string {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
		sc := scenario(t, policytest.Hundred().Plan(), 0.98, time.Second)
		sc.Seed, sc.Warmup, sc.Window = seed, 100*ms, 250*ms
		sc.Service = func(seed uint64) (sim.Service, error) {
			return sim.JitterService(sc.Tables, sim.Normal, 0.1, seed), nil
		}
		r, err := sim.Replicate(context.Background(), sc, 5)
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(r.Report)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	one, two, other := report(1, 7), report(2, 7), report(2, 8)
	if one != two {
		t.Errorf("the report depends on GOMAXPROCS:\n%s\n%s", one, two)
	}
	if one == other {
		t.Error("another seed gives the same report")
	}
}

// Requests before the warm-up ends run without being counted, and those that
// arrived before Duration are served after it.
func TestWarmupAndDrain(t *testing.T) {
	plan := policytest.Single(1, false, policytest.Model{Batch: 1, First: 10 * ms, SLO: time.Second, RPS: 10})
	var requests []arrivals.Request
	for i := range 10 {
		requests = append(requests, arrivals.Request{ArrivedAt: time.Duration(i) * 10 * ms})
	}
	tables := policytest.Compile(t, plan)
	pol, err := policies.New(plan.Policy, tables)
	if err != nil {
		t.Fatal(err)
	}
	r, err := sim.Run(context.Background(), sim.Config{Tables: tables, Policy: pol, Source: arrivals.Slice(requests), Verify: true,
		Duration: 65 * ms, Warmup: 15 * ms})
	if err != nil {
		t.Fatal(err)
	}
	// Arrivals at 20, 30, 40, 50 and 60 ms count; the last ends at 70 ms.
	if r.Report.Requests != 5 || r.Report.Completed != 5 {
		t.Errorf("%d requests, %d completed, want 5", r.Report.Requests, r.Report.Completed)
	}
	// Busy all the counted 50 ms, of which the work until 65 ms counts.
	d := r.Report.Devices[0]
	if d.RunningUS.D() != 50*ms || d.IdleUS != 0 || d.Utilisation != 1 || d.Count != 1 {
		t.Errorf("device use %+v, want 50 ms of running", d)
	}
}

// Ingress and egress are part of a request's latency.
func TestIngressAndEgress(t *testing.T) {
	plan := policytest.Single(1, false, policytest.Model{Batch: 1, First: 10 * ms, SLO: time.Second, RPS: 10})
	tables := policytest.Compile(t, plan)
	pol, _ := policies.New(plan.Policy, tables)
	r, err := sim.Run(context.Background(), sim.Config{Tables: tables, Policy: pol, Source: arrivals.Slice([]arrivals.Request{{ArrivedAt: 5 * ms}}),
		Ingress: 2 * ms, Egress: 3 * ms, Verify: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Report.Latency.MaxUS.D(); got != 15*ms {
		t.Errorf("latency %v, want 2 + 10 + 3 ms", got)
	}
}

// Utilisation is of all devices of a kind, and shares count by their size.
func TestUtilisationCountsSharesBySize(t *testing.T) {
	hundred := policytest.Hundred()
	hundred.Params = map[string]float64{"eager": 0} // batches are full
	plan := hundred.Plan()
	r := replicateOnce(t, scenario(t, plan, 0.8, 20*time.Second)).Report
	for i, want := range []float64{0.8, 0.8} { // the stages balance
		if d := r.Devices[i]; math.Abs(d.Utilisation-want) > 0.02 || d.Count != plan.Pools[i].Count {
			t.Errorf("%s: utilisation %.3f of %d, want %.2f of %d", d.Device, d.Utilisation, d.Count, want, plan.Pools[i].Count)
		}
	}
}

// A lost device's batches run elsewhere; while none is left requests wait and
// are then dropped with the reason.
func TestBatchesOfALostDeviceRunElsewhere(t *testing.T) {
	plan := policytest.Single(2, false, policytest.Model{Batch: 1, First: 10 * ms, SLO: 50 * ms, RPS: 100})
	sc := scenario(t, plan, 0.5, 4*time.Second)
	calm := replicateOnce(t, sc).Report
	if calm.Dropped != 0 {
		t.Fatalf("%d dropped without a fault", calm.Dropped)
	}
	sc.Faults = []sim.Fault{{At: time.Second, Device: 0}, {At: 3 * time.Second, Device: 0, ComesBack: true}}
	one := replicateOnce(t, sc).Report
	if one.Late > 0 || one.Attainment < 0.95 {
		t.Errorf("one of two devices lost at half load: attainment %.3f, %d late", one.Attainment, one.Late)
	}
	sc.Faults = []sim.Fault{{At: time.Second, Device: 0}, {At: time.Second, Device: 1}, {At: 2 * time.Second, Device: 1, ComesBack: true}}
	both := replicateOnce(t, sc).Report
	if n := both.DroppedByReason[policy.ReasonWorkerLost.String()]; n < 30 || n > 70 {
		t.Errorf("both devices lost for a second at 50 rps: %v dropped, want about 48 of reason worker_lost", both.DroppedByReason)
	}
	if both.Requests != both.Completed+both.Dropped {
		t.Errorf("%d requests, %d completed, %d dropped", both.Requests, both.Completed, both.Dropped)
	}
}

// The services' means and variations are what they say.
func TestServicesHaveTheirMeanAndVariation(t *testing.T) {
	tables := policytest.Compile(t, policytest.Hundred().Plan())
	mean := tables.Stages[1].Infer[1].Seconds()
	for name, c := range map[string]struct {
		s  sim.Service
		cv float64
	}{
		"exact":       {sim.ExactService(tables), 0},
		"lognormal":   {sim.JitterService(tables, sim.Lognormal, 0.3, 1), 0.3},
		"normal":      {sim.JitterService(tables, sim.Normal, 0.1, 1), 0.1},
		"exponential": {sim.JitterService(tables, sim.Exponential, 1, 1), 1},
	} {
		const n = 200_000
		var sum, sq float64
		for range n {
			x := c.s.RunTime(1, 2).Seconds() / mean
			sum, sq = sum+x, sq+x*x
		}
		m := sum / n
		if cv := math.Sqrt(sq/n - m*m); math.Abs(m-1) > 0.01 || math.Abs(cv-c.cv) > 0.01 {
			t.Errorf("%s: mean %.4f of the table's, variation %.4f, want 1 and %.2f", name, m, cv, c.cv)
		}
		if got := c.s.TransferTime(1, 2, 5*ms); got != 5*ms {
			t.Errorf("%s: transfer %v, want as planned", name, got)
		}
	}
}

// Recorded times come back in order, from the start when they run out, and are
// scaled for batches without any.
func TestRecordedTimesComeInOrder(t *testing.T) {
	tables := policytest.Compile(t, policytest.Hundred().Plan())
	recorded := sim.Samples{Runs: [][][]time.Duration{{{7 * ms, 8 * ms, 9 * ms}}}}
	s, err := sim.RecordedService(tables, recorded, false, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []time.Duration{7 * ms, 8 * ms, 9 * ms, 7 * ms} {
		if got := s.RunTime(0, 1); got != want {
			t.Errorf("draw %d: %v, want %v", i, got, want)
		}
	}
	// A batch of two costs 1.6 times one: the next sample, 8 ms, scaled.
	if got := s.RunTime(0, 2); got != 12800*time.Microsecond {
		t.Errorf("batch of two: %v, want 12.8ms", got)
	}
	if got := s.RunTime(1, 1); got != tables.Stages[1].Infer[0] {
		t.Errorf("stage without samples: %v, want the table's %v", got, tables.Stages[1].Infer[0])
	}
	drawn, err := sim.RecordedService(tables, recorded, true, 1)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[time.Duration]int{}
	for range 3000 {
		seen[drawn.RunTime(0, 1)]++
	}
	for _, d := range recorded.Runs[0][0] {
		if seen[d] < 900 || seen[d] > 1100 {
			t.Errorf("%v drawn %d times of 3000, want about a third", d, seen[d])
		}
	}
	if _, err := sim.RecordedService(tables, sim.Samples{Runs: [][][]time.Duration{{{-1}}}}, false, 1); err == nil {
		t.Error("a negative time is accepted")
	}
	if _, err := sim.RecordedService(tables, sim.Samples{Transfers: make([][][]time.Duration, 3)}, false, 1); err == nil {
		t.Error("more stages than the plan has are accepted")
	}
}

// Recorded loads come back at their moments, and so does when the policy heard of
// runs. What does not fit together is refused.
func TestEmpiricalOfServing(t *testing.T) {
	tables := policytest.Compile(t, policytest.Hundred().Plan())
	runs, none := [][][]time.Duration{{{7 * ms, 9 * ms}, nil}}, []time.Duration(nil)
	service, err := sim.RecordedService(tables, sim.Samples{Runs: runs, Starts: [][][]time.Duration{{{0, 50 * ms}, nil}}, ReportDelays: [][][]time.Duration{{{ms, 2 * ms}, nil}},
		Loads: [][]time.Duration{{30 * ms, 40 * ms}}, LoadStarts: [][]time.Duration{{0, time.Second}}}, false, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ at, told, load time.Duration }{{0, ms, 30 * ms}, {40 * ms, 2 * ms, 30 * ms}, {600 * ms, 2 * ms, 40 * ms}} {
		service.ObserveStart(c.at, 0)
		service.RunTime(0, 2) // borrowed of batches of one
		load, ok := service.LoadTime(0)
		if told := service.ReportDelay(); told != c.told || load != c.load || !ok {
			t.Errorf("at %v: told %v, load %v, expected %v and %v", c.at, told, load, c.told, c.load)
		}
	}
	if service.RunTime(1, 1); service.ReportDelay() != 0 {
		t.Error("a run that was not recorded is told of late")
	}
	if _, ok := service.LoadTime(1); ok {
		t.Error("a load that was not recorded has a time")
	}
	for name, bad := range map[string]sim.Samples{
		"told of fewer runs":    {Runs: runs, ReportDelays: [][][]time.Duration{{{ms}, nil}}},
		"told of other batches": {Runs: runs, ReportDelays: [][][]time.Duration{{{ms, ms}}}},
		"told before":           {Runs: runs, ReportDelays: [][][]time.Duration{{{ms, -1}, nil}}},
		"negative loads":        {Loads: [][]time.Duration{{-1}}},
		"unordered loads":       {Loads: [][]time.Duration{{1, 1}}, LoadStarts: [][]time.Duration{{2, 1}}},
		"networks of others":    {Loads: [][]time.Duration{none, none, none, none, none, none, none, none, none}},
	} {
		if _, err := sim.RecordedService(tables, bad, false, 1); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// With their starts, recorded times come back at their moments: a run takes the
// time of the one of its batch that began nearest to it.
func TestEmpiricalByStart(t *testing.T) {
	tables := policytest.Compile(t, policytest.Hundred().Plan())
	recorded := sim.Samples{Runs: [][][]time.Duration{{{7 * ms, 9 * ms}, nil}}, Starts: [][][]time.Duration{{{0, 50 * ms}, nil}}}
	service, err := sim.RecordedService(tables, recorded, false, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ at, want time.Duration }{{0, 7 * ms}, {24 * ms, 7 * ms}, {26 * ms, 9 * ms}, {time.Second, 9 * ms}, {0, 7 * ms}} {
		service.ObserveStart(c.at, 0)
		if got := service.RunTime(0, 1); got != c.want {
			t.Errorf("a run at %v takes %v, expected %v", c.at, got, c.want)
		}
	}
	service.ObserveStart(60*ms, 0)
	if got := service.RunTime(0, 2); got != 14400*time.Microsecond {
		t.Errorf("batch of two at 60 ms: %v, expected 9 ms scaled by 1.6", got)
	}
	for name, bad := range map[string][][][]time.Duration{
		"fewer": {{{0}, nil}}, "unordered": {{{5, 0}, nil}}, "other batches": {{{0, 50 * ms}}}, "no stage": {},
	} {
		if _, err := sim.RecordedService(tables, sim.Samples{Runs: recorded.Runs, Starts: bad}, false, 1); err == nil {
			t.Errorf("%s starts are accepted", name)
		}
	}

	// The clock of a run starts with its first request.
	pol, err := policies.New(formats.PolicySpec{Name: "reserve"}, tables)
	if err != nil {
		t.Fatal(err)
	}
	log := &ticks{Service: service}
	list := []arrivals.Request{{ArrivedAt: 3 * time.Second}, {ArrivedAt: 4 * time.Second}}
	if _, err := sim.Run(context.Background(), sim.Config{Tables: tables, Policy: pol, Source: arrivals.Slice(list), Service: log}); err != nil {
		t.Fatal(err)
	}
	if n := len(log.at); n < 2 || log.at[0] >= time.Second || log.at[n-1] < time.Second || log.at[n-1] > 2*time.Second {
		t.Errorf("runs begin at %v after the first request, of two a second apart", log.at)
	}
}

// ticks notes when runs start.
type ticks struct {
	sim.Service
	at []time.Duration
}

func (l *ticks) ObserveStart(now, idle time.Duration) {
	l.at = append(l.at, now)
	l.Service.ObserveStart(now, idle)
}

// The trace is JSON with a span for every run and both ends of every transfer.
func TestChromeTrace(t *testing.T) {
	sc := scenario(t, policytest.Hundred().Plan(), 0.5, 200*ms)
	cfg, err := sc.Config(0)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	cfg.ChromeTrace = &b
	r, err := sim.Run(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	var events []struct {
		Ph, Name string
		Ts, Dur  float64
		Pid, Tid int
		Args     struct{ Value int }
	}
	if err := json.Unmarshal(b.Bytes(), &events); err != nil {
		t.Fatal(err)
	}
	last := map[[2]int]float64{}
	spans, counted, open := 0, 0, -1
	for _, e := range events {
		if e.Ph == "C" {
			counted, open = counted+1, e.Args.Value
		}
		if e.Ph != "X" {
			continue
		}
		spans++
		at := [2]int{e.Pid, e.Tid}
		if e.Ts < last[at]-1e-6 || e.Dur <= 0 {
			t.Fatalf("span %+v begins before %v", e, last[at])
		}
		last[at] = e.Ts + e.Dur
	}
	if int64(spans) != 4*r.DispatchedBatches {
		t.Errorf("%d spans for %d batches, want two runs and two link ends each", spans, r.DispatchedBatches)
	}
	if counted == 0 || open != 0 {
		t.Errorf("%d values of open requests, the last %d, expected some and 0 at the end", counted, open)
	}
	cfg, _ = sc.Config(0)
	cfg.ChromeTrace = broken{}
	if _, err := sim.Run(context.Background(), cfg); err == nil || !strings.Contains(err.Error(), "trace") {
		t.Errorf("a broken trace file gives %v", err)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }

// Each model's highest load and that of all together.
func TestFindMaxLoad(t *testing.T) {
	// Model 0 is planned at half of what its device does, model 1 at twice.
	plan := policytest.Single(1, false,
		policytest.Model{Batch: 1, First: 10 * ms, SLO: 200 * ms, RPS: 50},
		policytest.Model{Batch: 1, First: 10 * ms, SLO: 200 * ms, RPS: 200})
	sc := scenario(t, plan, 1, 20*time.Second)
	sc.Arrivals = &formats.Arrivals{Process: "uniform"}
	found, err := sim.FindMaxLoad(context.Background(), sc, shares(sc, 0.999), 1, sim.MaxSearchLoad)
	if err != nil {
		t.Fatal(err)
	}
	if found.Models[0] != 2 || found.Models[1] != 0.5 || found.Overall != 0.5 {
		t.Errorf("found %v and %v overall, want 2, 0.5 and 0.5", found.Models, found.Overall)
	}
	if p := found.PointAt(0.5); p == nil || p.Report.Attainment < 0.999 || p.Report.Load != 0.5 {
		t.Errorf("point at 0.5: %+v", p)
	}
	if p := found.PointAt(0.55); p == nil || p.Report.Models[1].Attainment >= 0.999 {
		t.Errorf("point at 0.55: %+v, want one that fails", p)
	}
	if _, err := sim.FindMaxLoad(context.Background(), sc, shares(sc, 1.5), 1, sim.MaxSearchLoad); err == nil {
		t.Error("an attainment of 1.5 is accepted")
	}
	// Up to a load: nothing beyond is simulated, and what passes there has it.
	for _, c := range []struct{ most, first, second float64 }{{1.2, 1.2, 0.5}, {1, 1, 0.5}, {0.52, 0.5, 0.5}, {0.05, 0.05, 0.05}} {
		found, err := sim.FindMaxLoad(context.Background(), sc, shares(sc, 0.999), 1, c.most)
		if err != nil {
			t.Fatal(err)
		}
		if found.Models[0] != c.first || found.Models[1] != c.second || found.Overall != c.second {
			t.Errorf("up to %v: found %v and %v overall, want %v and %v", c.most, found.Models, found.Overall, c.first, c.second)
		}
		if last := found.Points[len(found.Points)-1].Load; last > c.most {
			t.Errorf("up to %v: load %v was simulated", c.most, last)
		}
	}
	for _, most := range []float64{0, 0.04, 5.1, math.NaN()} {
		if _, err := sim.FindMaxLoad(context.Background(), sc, shares(sc, 0.999), 1, most); err == nil {
			t.Errorf("loads up to %v are accepted", most)
		}
	}
}

// Loads of a grid go up by steps from a half, and below it by a part of themselves; numbers and
// loads belong to each other.
func TestLoadGrid(t *testing.T) {
	for _, step := range []float64{0.005, 0.01, 0.05} {
		grid := sim.LoadGrid{Step: step}
		if first := grid.Load(1); first < step || first > step*(1+2*step) {
			t.Errorf("step %g: the first load is %g", step, first)
		}
		for n := 1; grid.Load(n) < 1.5; n++ {
			at, next := grid.Load(n), grid.Load(n+1)
			if got := grid.NearestNumber(at); got != n {
				t.Errorf("step %g: load %g of number %d is nearest to number %d", step, at, n, got)
			}
			if more := next - at; more > 2*step*at+1e-9 || more > step+1e-9 || more < step*min(1, 2*at)-1e-9 {
				t.Errorf("step %g: %g follows %g", step, next, at)
			}
		}
		if grid.NearestNumber(1) == 0 || grid.Load(grid.NearestNumber(1)) != 1 || grid.NearestNumber(0) != 1 || grid.Position(0) != 0 {
			t.Errorf("step %g: load 1 has number %d, load 0 number %d", step, grid.NearestNumber(1), grid.NearestNumber(0))
		}
	}
}

// Runs at lower rates last longer, so that they have as many requests.
func TestAtRates(t *testing.T) {
	sc := &sim.Scenario{Rates: []float64{60, 40}, Duration: time.Minute, Warmup: 6 * time.Second}
	for _, c := range []struct {
		rates         []float64
		longest, want time.Duration
	}{
		{[]float64{30, 20}, time.Hour, 2 * time.Minute},
		{[]float64{30, 20}, 90 * time.Second, 90 * time.Second},
		{[]float64{30, 20}, 0, time.Minute},
		{[]float64{120, 80}, time.Hour, time.Minute},
	} {
		at := sc.AtRates(c.rates, c.longest)
		if at.Duration != c.want || at.Warmup != c.want/10 || !slices.Equal(at.Rates, c.rates) {
			t.Errorf("at %v, at most %v: %v after %v", at.Rates, c.longest, at.Duration, at.Warmup)
		}
	}
}

// Every model has its own highest load, found in the same runs; together they have the
// least of these.
func TestFindOwnLoads(t *testing.T) {
	// Model 0 is planned at less than what its device does, model 1 at twice.
	plan := policytest.Single(1, false,
		policytest.Model{Batch: 1, First: 10 * ms, SLO: 200 * ms, RPS: 80},
		policytest.Model{Batch: 1, First: 10 * ms, SLO: 200 * ms, RPS: 200})
	sc := scenario(t, plan, 1, 20*time.Second)
	sc.Arrivals = &formats.Arrivals{Process: "uniform"}
	search := sim.ModelLoadSearch{Shares: shares(sc, 0.999), Runs: 1, Step: 0.05, MaxLoad: 1.5}
	for _, c := range []struct {
		name     string
		from     []float64
		together bool
		want     []float64
	}{
		{"own", nil, false, []float64{1.25, 0.5}},
		{"own, guessed", []float64{0.3, 1.4}, false, []float64{1.25, 0.5}},
		{"together", nil, true, []float64{0.5, 0.5}},
	} {
		o := search
		o.StartLoads, o.SameLoad = c.from, c.together
		found, err := sim.FindModelLoads(t.Context(), sc, o)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range c.want {
			if math.Abs(found.Loads[i]-want) > 1e-9 {
				t.Errorf("%s: loads %v, want %v", c.name, found.Loads, c.want)
			}
		}
		if r := found.Report; r == nil || r.Models[0].Attainment < 0.999 || r.Models[1].Attainment < 0.999 {
			t.Errorf("%s: the run at these loads shows %+v", c.name, r)
		}
	}
	// Least loads: where one fails at them there is no search, else the same is found.
	for _, c := range []struct{ first, second, want float64 }{{1.25, 0.5, 1.25}, {0.3, 0.2, 1.25}, {1.3, 0.2, 0}, {0.3, 0.55, 0}, {1.6, 0.2, 0}} {
		o := search
		o.Runs, o.MinLoads = 2, []float64{c.first, c.second}
		found, err := sim.FindModelLoads(t.Context(), sc, o)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(found.Loads[0]-c.want) > 1e-9 || (found.Report == nil) != (c.want == 0) {
			t.Errorf("at least %v: loads %v, want %v of the first", o.MinLoads, found.Loads, c.want)
		}
	}
	search.MaxLoad = 1
	if found, err := sim.FindModelLoads(t.Context(), sc, search); err != nil || found.Loads[0] != 1 {
		t.Errorf("at most 1: %+v, %v", found, err)
	}
	search.Shares, search.Step = shares(sc, 2), 0.5
	if found, err := sim.FindModelLoads(t.Context(), sc, search); err != nil || found.Report != nil || found.Loads[0] != 0 {
		t.Errorf("what no load attains: %+v, %v", found, err)
	}
}

// The report is that of as many runs at the loads that were found, also where the first of
// them was looked at before the others.
func TestOwnLoadsReport(t *testing.T) {
	plan := policytest.Single(2, false, policytest.Model{Batch: 2, First: 10 * ms, More: 5 * ms, SLO: 60 * ms, RPS: 100})
	sc := scenario(t, plan, 1, 10*time.Second)
	for _, least := range [][]float64{nil, {0.5}} {
		found, err := sim.FindModelLoads(t.Context(), sc, sim.ModelLoadSearch{Shares: shares(sc, 0.95), Runs: 3, Step: 0.05, MaxLoad: 3, MinLoads: least})
		if err != nil || found.Report == nil {
			t.Fatal(found, err)
		}
		at := *sc
		at.Rates = []float64{100 * found.Loads[0]}
		want, err := sim.Replicate(t.Context(), &at, 3)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(found.Report, want.Report) {
			t.Errorf("least %v, load %v: report %+v, want %+v", least, found.Loads, found.Report, want.Report)
		}
		at.Rates[0] += 0.05 * 100
		if above, err := sim.Replicate(t.Context(), &at, 3); err != nil || above.Report.Attainment >= 0.95 || want.Report.Attainment < 0.95 {
			t.Errorf("least %v: attainment %v at load %v and %v above it, %v", least, want.Report.Attainment, found.Loads, above.Report.Attainment, err)
		}
	}
}

func TestCancelledRun(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := sim.Replicate(ctx, scenario(t, policytest.Hundred().Plan(), 1, time.Hour), 3); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the cancellation", err)
	}
}

// rogue is a policy that answers every arrival as its function says.
type rogue func(now time.Duration, ev *policy.Event, out *policy.Actions)

func (r rogue) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) { r(now, ev, out) }

func dispatch(out *policy.Actions, batch int32, reqs []int32, hops ...policy.Hop) {
	out.List = append(out.List, policy.Action{Kind: policy.Dispatch, Batch: batch, Size: int32(len(reqs)), HopCount: int16(len(hops)),
		TaskFirst: int32(len(out.Tasks)), HopFirst: int32(len(out.Hops))})
	out.Tasks = append(out.Tasks, reqs...)
	out.Hops = append(out.Hops, hops...)
}

// The invariants catch policies that break the contract.
func TestVerifyCatches(t *testing.T) {
	tables := policytest.Compile(t, policytest.Single(2, false, policytest.Model{Batch: 2, First: 10 * ms, SLO: time.Second, RPS: 10},
		policytest.Model{Batch: 2, First: 10 * ms, SLO: time.Second, RPS: 10}))
	hop := func(now time.Duration) policy.Hop {
		return policy.Hop{Uplink: -1, Downlink: -1, XferStart: now, XferEnd: now, Start: now, End: now + 10*ms}
	}
	for name, c := range map[string]struct {
		p    rogue
		want string
	}{
		"forgets requests": {func(time.Duration, *policy.Event, *policy.Actions) {}, "neither answered nor dropped"},
		"drops twice": {func(_ time.Duration, ev *policy.Event, out *policy.Actions) {
			if ev.Kind == policy.Arrival {
				out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: ev.Req}, policy.Action{Kind: policy.Drop, Req: ev.Req})
			}
		}, "is not open"},
		"dispatches a request twice": {func(now time.Duration, ev *policy.Event, out *policy.Actions) {
			if ev.Kind == policy.Arrival {
				dispatch(out, 0, []int32{ev.Req, ev.Req}, hop(now))
			}
		}, "not a waiting task"},
		"uses a slot twice": {func(now time.Duration, ev *policy.Event, out *policy.Actions) {
			if ev.Kind == policy.Arrival {
				dispatch(out, 0, []int32{ev.Req}, hop(now))
			}
		}, "is under way"},
		"leaves the stage": {func(now time.Duration, ev *policy.Event, out *policy.Actions) {
			if ev.Kind == policy.Arrival {
				h := hop(now)
				h.Device = 3
				dispatch(out, 0, []int32{ev.Req}, h)
			}
		}, "not on it"},
		"batch too large": {func(now time.Duration, ev *policy.Event, out *policy.Actions) {
			if ev.Kind == policy.Arrival {
				dispatch(out, 0, []int32{ev.Req, ev.Req, ev.Req}, hop(now))
			}
		}, "batch of 3"},
		"reserves the past": {func(now time.Duration, ev *policy.Event, out *policy.Actions) {
			if ev.Kind == policy.Arrival && now > 0 {
				dispatch(out, 5, []int32{ev.Req}, hop(0))
			}
		}, "out of order"},
		"aborts nothing": {func(_ time.Duration, ev *policy.Event, out *policy.Actions) {
			out.List = append(out.List, policy.Action{Kind: policy.Abort, Batch: 4})
		}, "aborts batch slot 4"},
		"asks for more than a pool has": {func(_ time.Duration, ev *policy.Event, out *policy.Actions) {
			out.List = append(out.List, policy.Action{Kind: policy.SwitchMode})
		}, "does not have"},
	} {
		src := arrivals.Slice([]arrivals.Request{{ArrivedAt: 0}, {ArrivedAt: ms}, {ArrivedAt: 2 * ms}})
		_, err := sim.Run(context.Background(), sim.Config{Tables: tables, Policy: c.p, Source: src, Verify: true})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", name, err, c.want)
		}
	}
}

func TestBadInput(t *testing.T) {
	tables := policytest.Compile(t, policytest.Hundred().Plan())
	pol, _ := policies.New(formats.PolicySpec{}, tables)
	good := sim.Config{Tables: tables, Policy: pol, Source: arrivals.Slice(nil)}
	for name, change := range map[string]func(*sim.Config){
		"no source":          func(c *sim.Config) { c.Source = nil },
		"negative warm-up":   func(c *sim.Config) { c.Warmup = -1 },
		"fault on no device": func(c *sim.Config) { c.Faults = []sim.Fault{{Device: 100}} },
		"unknown model":      func(c *sim.Config) { c.Source = arrivals.Slice([]arrivals.Request{{Model: 1}}) },
		"out of order":       func(c *sim.Config) { c.Source = arrivals.Slice([]arrivals.Request{{ArrivedAt: 5}, {ArrivedAt: 3}}) },
	} {
		c := good
		change(&c)
		if _, err := sim.Run(context.Background(), c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for name, change := range map[string]func(*sim.Scenario){
		"no duration":    func(sc *sim.Scenario) { sc.Duration = 0 },
		"unknown policy": func(sc *sim.Scenario) { sc.Policy.Name = "reserv" },
		"trace":          func(sc *sim.Scenario) { sc.Arrivals = &formats.Arrivals{Trace: "x.csv"} },
		"process":        func(sc *sim.Scenario) { sc.Arrivals = &formats.Arrivals{Process: "poison"} },
		"rates":          func(sc *sim.Scenario) { sc.Rates = []float64{1, 2} },
	} {
		sc := scenario(t, policytest.Hundred().Plan(), 1, time.Second)
		change(sc)
		if _, err := sim.Replicate(context.Background(), sc, 2); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := sim.Replicate(context.Background(), scenario(t, policytest.Hundred().Plan(), 1, time.Second), 0); err == nil {
		t.Error("no runs: no error")
	}
}

// lateFailure is a service that waits for a sign, goes on for a second of simulated time, and then says that runs end before they begin.
type lateFailure struct {
	sim.Service
	sign    <-chan struct{}
	elapsed time.Duration
}

func (s *lateFailure) ObserveStart(elapsed, idleTime time.Duration) {
	<-s.sign
	s.elapsed = elapsed
	s.Service.ObserveStart(elapsed, idleTime)
}

func (s *lateFailure) RunTime(stage, batch int32) time.Duration {
	if s.elapsed > time.Second {
		return -time.Hour
	}
	return s.Service.RunTime(stage, batch)
}

// Of several runs that fail, the one with the lowest number is named, even if another fails first.
func TestFirstFailingRunIsNamed(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	sc := scenario(t, policytest.Single(1, false, policytest.Model{Batch: 1, First: 1 * ms, SLO: 20 * ms, RPS: 500}), 1, 10*time.Minute)
	sc.Verify = true
	failed := make(chan struct{})
	sc.Service = func(seed uint64) (sim.Service, error) {
		if seed == sc.Seed { // the first run
			return &lateFailure{Service: sim.ExactService(sc.Tables), sign: failed}, nil
		}
		close(failed)
		return nil, errors.New("the second run fails at once")
	}
	if _, err := sim.Replicate(t.Context(), sc, 2); err == nil || !strings.Contains(err.Error(), "run 0: ") {
		t.Errorf("found %v, expected the error of run 0", err)
	}
}

// An interrupt keeps the first runs that were complete: the report of as many
// runs alone, but for the mark.
func TestInterruptedRuns(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // one run after the other
	plan := policytest.Single(1, false, policytest.Model{Batch: 1, First: 10 * ms, SLO: 200 * ms, RPS: 50})
	// after n runs have begun, the context ends
	after := func(n int) (context.Context, *sim.Scenario) {
		ctx, cancel := context.WithCancel(context.Background())
		sc := scenario(t, plan, 1, time.Second)
		sc.Service = func(uint64) (sim.Service, error) {
			if n--; n == 0 {
				cancel()
			}
			return sim.ExactService(sc.Tables), nil
		}
		return ctx, sc
	}
	ctx, sc := after(4)
	got, err := sim.Replicate(ctx, sc, 1000)
	if !errors.Is(err, context.Canceled) || got == nil {
		t.Fatalf("got %v, %v", got, err)
	}
	want, err := sim.Replicate(context.Background(), scenario(t, plan, 1, time.Second), 3)
	if err != nil {
		t.Fatal(err)
	}
	want.Report.Interrupted = true
	if diff := cmp.Diff(want.Report, got.Report); diff != "" {
		t.Error(diff)
	}
	ctx, sc = after(1)
	if got, err := sim.Replicate(ctx, sc, 1000); got != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("with no run complete: %v, %v", got, err)
	}

	ctx, sc = after(6) // in the third load
	found, err := sim.Sweep(ctx, sc, []float64{.5, .7, .9, 1.1}, 2)
	if !errors.Is(err, context.Canceled) || found == nil {
		t.Fatalf("sweep: %v, %v", found, err)
	}
	if r, _ := found.SweepReport(); !r.Interrupted || len(r.Curve) != 2 || r.Load != .7 || r.Runs != 2 {
		t.Errorf("sweep: %+v", r)
	}
	ctx, sc = after(1)
	if found, err := sim.Sweep(ctx, sc, []float64{.5, .7}, 2); found != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("sweep with no load complete: %v, %v", found, err)
	}

	ctx, sc = after(3)
	found, err = sim.FindMaxLoad(ctx, sc, shares(sc, .99), 1, sim.MaxSearchLoad)
	if !errors.Is(err, context.Canceled) || found == nil {
		t.Fatalf("search: %v, %v", found, err)
	}
	if r, _ := found.Report(); !r.Interrupted || len(r.Curve) != 2 || r.MaxLoadFactor != nil || r.Models[0].MaxLoadFactor != nil {
		t.Errorf("search: %+v", r)
	}
}

// A run whose arrivals are cut gives the report of a run of that duration, and one that is cut before anything is
// counted gives none.
func TestCutRunEqualsShorterRun(t *testing.T) {
	plan := policytest.Single(1, false, policytest.Model{Batch: 4, First: 10 * ms, SLO: 200 * ms, RPS: 90})
	runCut := func(events int, warmup time.Duration) (*sim.Result, error) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		sc := scenario(t, plan, 1, time.Hour)
		sc.Cut, sc.Warmup = ctx, warmup
		sc.Service = func(uint64) (sim.Service, error) {
			return cancellingService{sim.ExactService(sc.Tables), &events, cancel}, nil
		}
		return sim.Replicate(context.Background(), sc, 1)
	}
	rapid.Check(t, func(rt *rapid.T) {
		warmup := rapid.SampledFrom([]time.Duration{0, 300 * ms}).Draw(rt, "warmup")
		got, err := runCut(rapid.IntRange(100, 2000).Draw(rt, "runs"), warmup)
		if !errors.Is(err, context.Canceled) || got == nil {
			rt.Fatalf("got %v, %v", got, err)
		}
		shorter := scenario(t, plan, 1, got.Report.DurationUS.D())
		shorter.Warmup = warmup
		want, err := sim.Replicate(context.Background(), shorter, 1)
		if err != nil {
			rt.Fatal(err)
		}
		want.Report.Interrupted = true
		if diff := cmp.Diff(want.Report, got.Report); diff != "" {
			rt.Error(diff)
		}
	})
	if got, err := runCut(1, time.Minute); got != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("cut within the warm-up: %v, %v", got, err)
	}
}

// cancellingService cancels a context after some runs.
type cancellingService struct {
	sim.Service
	runs   *int
	cancel func()
}

func (s cancellingService) RunTime(stage, batch int32) time.Duration {
	if *s.runs--; *s.runs == 0 {
		s.cancel()
	}
	return s.Service.RunTime(stage, batch)
}

// shares returns one share of requests in time for every model of a scenario.
func shares(sc *sim.Scenario, share float64) []float64 {
	return slices.Repeat([]float64{share}, len(sc.Tables.Models))
}
