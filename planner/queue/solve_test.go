package queue_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gonum.org/v1/gonum/stat"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/planner/kind"
	"inferplan/planner/queue"
	"inferplan/sim"
	"inferplan/solver/highs"
)

// server is an instance of a model of seven or of thirteen billion parameters.
func server(device string, base float64) formats.LLMInstance {
	return formats.LLMInstance{
		Device: device, TensorParallel: 1, Iteration: formats.Iteration{BaseNS: base, SequenceNS: 87000, ContextNS: 183, PromptNS: 64000, HingeTokens: 128, AttentionNS: 2},
		KVTokens: 200000, KVSource: formats.KVMeasured, SwapGBps: 23.6, Loads: &formats.ModelLoads{ColdUS: document.Micros(4 * time.Second), WarmUS: document.Micros(time.Second)},
	}
}

// documents are two models in two classes, on two kinds of devices.
func documents() planner.Inputs {
	lengths := func(mean float64) *formats.Lengths {
		return &formats.Lengths{Distribution: formats.LengthsNormal, Mean: mean, SD: mean / 3, Max: int(4 * mean)}
	}
	return planner.Inputs{
		Profile: &formats.Profile{Format: formats.FormatProfile, LLMs: []formats.LLMProfile{
			{Model: "m7", WeightBytes: 14e9, KVBytesPerToken: 131072, ContextTokens: 8192, Instances: []formats.LLMInstance{server("A100", 13e6), server("A10", 26e6)}},
			{Model: "m13", WeightBytes: 26e9, KVBytesPerToken: 131072, ContextTokens: 8192, Instances: []formats.LLMInstance{server("A100", 23e6)}},
		}},
		Cluster: &formats.Cluster{Format: formats.FormatCluster, Pools: []formats.Pool{{Device: "A100", Count: 3, USDPerHour: 3}, {Device: "A10", Count: 3, USDPerHour: 1}}},
		Workload: &formats.Workload{Format: formats.FormatWorkload, Section: &formats.LLM{Models: []string{"m7", "m13"}, Classes: []formats.LLMClass{
			{Class: "chat", SLO: document.SLO{Duration: 25 * time.Second}, RPS: 3, Shares: []float64{4, 1}, Prompt: lengths(500), Output: lengths(80)},
			{Class: "batch", SLO: document.SLO{Duration: 60 * time.Second}, RPS: 2, Models: []string{"m7"}, Prompt: lengths(500), Output: lengths(100), Percentile: "p95"},
		}}},
	}
}

func solve(in planner.Inputs, options ...any) (*planner.Result, error) {
	return solveBy(planner.Options{}, in, options...)
}

func solveBy(opt planner.Options, in planner.Inputs, options ...any) (*planner.Result, error) {
	for i := 0; i < len(options); i += 2 {
		opt.Set(options[i].(string), options[i+1])
	}
	return planner.Solve(context.Background(), in, opt, highs.Solver{}, nil)
}

// TestServersWithoutEstimateAreWarnedOf: servers of two devices whose iterations take longer than a duration can be have
// no estimate of requests. The plan does without them and says so.
func TestServersWithoutEstimateAreWarnedOf(t *testing.T) {
	in := documents()
	for i, base := range []float64{4e18, 20e6} {
		pair := server("A100", base)
		pair.TensorParallel = 2
		in.Profile.LLMs[i].Instances = append(in.Profile.LLMs[i].Instances, pair)
	}
	res, err := solve(in, "objective", "gpus")
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(res.Plan.Warnings, "\n"); !strings.Contains(text, "servers of [2 1] devices of A100, A10 are not planned with") {
		t.Errorf("warnings: %s", text)
	}
	for _, in := range formats.QueueOf(res.Plan).Instances {
		if in.TensorParallel != 1 {
			t.Errorf("instance %+v", in)
		}
	}
}

// A goodput that simulation shows above its bound is said of the chosen fleet alone, and not where only rounding is above.
func TestLimitedGoodputIsSaidOfTheChosenFleet(t *testing.T) {
	for part, isSaid := range map[float64]bool{0.5: true, 1 - 1e-12: false} {
		in := documents()
		in.Profile.LLMs, in.Cluster.Pools = in.Profile.LLMs[:1], in.Cluster.Pools[1:]
		llm := formats.LLMOf(in.Workload)
		llm.Models, llm.Classes = llm.Models[:1], llm.Classes[1:]
		problem := &kind.Problem{Documents: in, Values: document.NewValues(formats.PlanOptions(formats.PlanQueue)), Seed: 1}
		before, after, err := queue.LimitWarnings(t.Context(), problem, kind.NewRun(highs.Solver{}), part)
		if err != nil || strings.Contains(before, "in the long run") || strings.Contains(after, "in the long run it is at most") != isSaid {
			t.Errorf("a bound of %g of the goodput: warnings %q and then %q, %v", part, before, after, err)
		}
	}
}

// TestPlansAreValidAndRepeatable: for every objective the plan is valid, its figure is within the bound,
// it holds by the check, and it comes out the same again.
func TestPlansAreValidAndRepeatable(t *testing.T) {
	for _, c := range []struct {
		objective, algorithm string
		scale                float64
	}{{"gpus", "search", 1}, {"cost", "greedy", 1}, {"goodput", "search", 1}} {
		t.Run(c.objective, func(t *testing.T) {
			res, err := solve(documents(), "objective", c.objective, "algorithm", c.algorithm, "group-scale", c.scale)
			if err != nil {
				t.Fatal(err)
			}
			p := res.Plan
			if err := p.Validate(); err != nil {
				t.Fatal(err)
			}
			o, q := p.Objective, formats.QueueOf(p)
			if o.Bound == nil || o.Gap == nil || (c.objective == "goodput") != (o.Value <= *o.Bound) && o.Value != *o.Bound {
				t.Errorf("objective %+v", o)
			}
			if len(q.Groups) == 0 || len(q.Estimates) == 0 || len(q.Operations) == 0 || len(p.Assumptions) == 0 {
				t.Errorf("%d groups, %d estimates, %d operations, %d assumptions", len(q.Groups), len(q.Estimates), len(q.Operations), len(p.Assumptions))
			}
			for i := range q.Groups {
				g := &q.Groups[i]
				if len(g.Quantiles) != 3 || g.Quantiles[0].AtUS > g.Quantiles[2].AtUS || g.CompletionUS < g.StartUS {
					t.Errorf("group %+v", g)
				}
			}
			today := &kind.CheckInput{Plan: p, Promised: p, Profile: documents().Profile, Cluster: documents().Cluster, Workload: documents().Workload}
			for _, f := range queue.Method.Check(today) {
				t.Error(f)
			}
			if c.objective != "gpus" {
				return
			}
			again, err := solve(documents(), "objective", c.objective, "algorithm", c.algorithm, "group-scale", c.scale)
			if err != nil {
				t.Fatal(err)
			}
			var a, b bytes.Buffer
			if err := errors.Join(document.Write(&a, p), document.Write(&b, again.Plan)); err != nil || !bytes.Equal(a.Bytes(), b.Bytes()) {
				t.Error("another plan of the same documents", err)
			}
		})
	}
}

// endsAfter is a context that ends when so many runs have begun.
type endsAfter struct {
	context.Context
	cancel    context.CancelFunc
	remaining atomic.Int64
}

func newEndsAfter(n int64) *endsAfter {
	c := &endsAfter{}
	c.Context, c.cancel = context.WithCancel(context.Background())
	c.remaining.Store(n)
	return c
}

func (c *endsAfter) Done() <-chan struct{} {
	if c.remaining.Add(-1) == 0 {
		c.cancel()
	}
	return c.Context.Done()
}

// TestInterruptedSearchKeepsFleetAndBound: a search that ends early keeps the fleet that it has, with what bounds it.
func TestInterruptedSearchKeepsFleetAndBound(t *testing.T) {
	in := documents()
	in.Cluster.Pools = in.Cluster.Pools[:1]
	in.Cluster.Pools[0].Count = 1
	llm := in.Workload.Section.(*formats.LLM)
	llm.Models, llm.Classes = llm.Models[:1], llm.Classes[:1]
	llm.Classes[0].Shares = nil
	var opt planner.Options
	opt.Set("objective", "throughput")
	whole := newEndsAfter(math.MaxInt64)
	best, err := planner.Solve(whole, in, opt, highs.Solver{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	before := 0.0
	const points = 4
	for k := int64(1); k < points; k++ {
		res, err := planner.Solve(newEndsAfter((math.MaxInt64-whole.remaining.Load())*k/points), in, opt, highs.Solver{}, nil)
		if err != nil {
			t.Fatalf("point %d: %v", k, err)
		}
		o := res.Plan.Objective
		if res.StoppedBy != "interrupt" || o.Value < before || o.Value > best.Plan.Objective.Value || *o.Bound < best.Plan.Objective.Value {
			t.Errorf("point %d: stopped by %s, %v within %v, the whole search finds %v", k, res.StoppedBy, o.Value, *o.Bound, best.Plan.Objective.Value)
		}
		before = o.Value
		today := &kind.CheckInput{Plan: res.Plan, Promised: res.Plan, Profile: in.Profile, Cluster: in.Cluster, Workload: in.Workload}
		for _, f := range queue.Method.Check(today) {
			t.Error(f)
		}
	}
}

// TestCheckFinds: what no longer holds is found.
func TestCheckFinds(t *testing.T) {
	res, err := solve(documents(), "objective", "gpus")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		constraint string
		change     func(p *formats.Plan, in *planner.Inputs)
	}{
		{"memory", func(_ *formats.Plan, in *planner.Inputs) { in.Profile.LLMs[0].Instances[0].KVTokens = 100 }},
		{"latency", func(_ *formats.Plan, in *planner.Inputs) { in.Profile.LLMs[0].Instances[0].Iteration.BaseNS *= 1.1 }},
		{"measurement", func(_ *formats.Plan, in *planner.Inputs) { in.Profile.LLMs[1].Instances[0].Device = "B200" }},
		{"devices", func(_ *formats.Plan, in *planner.Inputs) { in.Cluster.Pools[0].Count = 0 }},
		{"class", func(_ *formats.Plan, in *planner.Inputs) { formats.LLMOf(in.Workload).Classes[1].Models = nil }},
		{"min_rps", func(_ *formats.Plan, in *planner.Inputs) { formats.LLMOf(in.Workload).Classes[0].RPS = 9 }},
		{"slo", func(_ *formats.Plan, in *planner.Inputs) {
			formats.LLMOf(in.Workload).Classes[0].Figure = formats.FigureTTFT
		}},
		{"slo", func(p *formats.Plan, _ *planner.Inputs) { formats.QueueOf(p).Classes[0].SLOUS = 1 }},
		{"rps", func(p *formats.Plan, _ *planner.Inputs) { formats.QueueOf(p).Classes[0].RPS = 500 }},
		{"objective", func(p *formats.Plan, _ *planner.Inputs) { p.Objective.Value++ }},
	} {
		in, plan := documents(), *res.Plan
		section := *formats.QueueOf(res.Plan)
		section.Classes = append([]formats.QueueClass(nil), section.Classes...)
		plan.Section = &section
		c.change(&plan, &in)
		found := ""
		for _, f := range queue.Method.Check(&kind.CheckInput{Plan: &plan, Profile: in.Profile, Cluster: in.Cluster, Workload: in.Workload}) {
			found += f.Constraint + " "
		}
		if !strings.Contains(found+" ", c.constraint+" ") {
			t.Errorf("found %q, expected %s", found, c.constraint)
		}
	}
}

// TestUnplannableDocumentsAreRefused: documents that cannot be planned for are refused with the field, or
// with what is nearest.
func TestUnplannableDocumentsAreRefused(t *testing.T) {
	llm := func(in *planner.Inputs) *formats.LLM { return formats.LLMOf(in.Workload) }
	for _, c := range []struct {
		want   string
		change func(in *planner.Inputs)
	}{
		{`llm.models[1]: found "m31", expected a model of the llms of profile`, func(in *planner.Inputs) { llm(in).Models[1] = "m31" }},
		{"llm.classes[0].rps: found no rate", func(in *planner.Inputs) { llm(in).Classes[0].RPS = 0 }},
		{"llm.classes[1].prompt: found no lengths", func(in *planner.Inputs) { llm(in).Classes[1].Prompt = nil }},
		{"llm.classes[0].max_tokens: found prompts of up to 2000 tokens and answers of up to 9000", func(in *planner.Inputs) { llm(in).Classes[0].Output.Max = 9000 }},
		{"without kv_tokens", func(in *planner.Inputs) { in.Profile.LLMs[1].Instances[0].KVTokens = 0 }},
		{"llm.models[1]: found \"m13\", expected a model that was measured on a device of the cluster", func(in *planner.Inputs) { in.Cluster.Pools = in.Cluster.Pools[1:] }},
		{"pools[0].usd_per_hour: found nothing", func(in *planner.Inputs) { in.Cluster.Pools[0].USDPerHour = 0 }},
		{"infeasible: the answer of a request of m13 chat takes", func(in *planner.Inputs) { llm(in).Classes[0].SLO.Duration = time.Second }},
		{"infeasible: the first token of a request of m7 batch takes", func(in *planner.Inputs) {
			llm(in).Classes[1].Figure, llm(in).Classes[1].SLO.Duration = formats.FigureTTFT, time.Millisecond
		}},
		{"infeasible: the work of the rates asked is more than", func(in *planner.Inputs) { llm(in).Classes[0].RPS = 900 }},
	} {
		in := documents()
		c.change(&in)
		// What is nearest is not simulated here: TestNearestLoad does that.
		_, err := solveBy(planner.Options{SkipNearest: true}, in, "objective", "cost")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, expected %s", err, c.want)
		}
		if inf, ok := errors.AsType[*kind.InfeasibleError](err); ok && inf.Nearest.String() == "" {
			t.Errorf("%v: nothing nearest", err)
		}
	}
}

// TestNearestSLOIsFeasible: what is named as nearest passes the check that failed.
func TestNearestSLOIsFeasible(t *testing.T) {
	in := documents()
	formats.LLMOf(in.Workload).Classes[0].SLO.Duration = time.Second
	_, err := solve(in, "objective", "gpus")
	inf, ok := errors.AsType[*kind.InfeasibleError](err)
	if !ok || inf.Constraint != "slo" {
		t.Fatal(err)
	}
	formats.LLMOf(in.Workload).Classes[0].SLO.Duration = time.Duration(math.Ceil(inf.Nearest.SLOUS)) * time.Microsecond
	_, err = solve(in, "objective", "gpus")
	if again, ok := errors.AsType[*kind.InfeasibleError](err); ok && again.Constraint == "slo" {
		t.Errorf("the nearest SLO is no better: %v", err)
	}
}

// chatAndBatch is one model in two classes, of which the rare one hurries.
func chatAndBatch() planner.Inputs {
	in := documents()
	in.Profile.LLMs = in.Profile.LLMs[1:]
	in.Profile.LLMs[0].KVBytesPerToken = 819200
	in.Profile.LLMs[0].Instances[0].KVTokens = 66144
	in.Profile.LLMs[0].Instances[0].Iteration = formats.Iteration{BaseNS: 23475000, SequenceNS: 60700, ContextNS: 593, PromptNS: 140500, AttentionNS: 8.08}
	in.Cluster.Pools = []formats.Pool{{Device: "A100", Count: 40}}
	l := formats.LLMOf(in.Workload)
	l.Models = []string{"m13"}
	lengths := func(mean, sd float64, most int) *formats.Lengths {
		return &formats.Lengths{Distribution: formats.LengthsLognormal, Mean: mean, SD: sd, Max: most}
	}
	l.Classes = []formats.LLMClass{
		{Class: "chat", SLO: document.SLO{Duration: 20 * time.Second}, RPS: 1.2, Prompt: lengths(800, 700, 4000), Output: lengths(200, 150, 900)},
		{Class: "batch", SLO: document.SLO{Duration: 200 * time.Second}, RPS: 4 * 1.2, Prompt: lengths(800, 700, 4000), Output: lengths(200, 150, 900)},
	}
	return in
}

// TestFleetIsSplitByClass: where it takes fewer devices, classes have instances of
// their own, each with as many sequences at once as suits it. Two runs show four devices to do;
// ten others have .9876 in time.
func TestFleetIsSplitByClass(t *testing.T) {
	res, err := solve(chatAndBatch(), "objective", "gpus")
	if err != nil {
		t.Fatal(err)
	}
	atOnce := map[string]int{}
	for _, in := range formats.QueueOf(res.Plan).Instances {
		if len(in.Caps) != 1 || in.Caps[0].Sequences != 0 {
			t.Fatalf("instance %+v serves both classes", in)
		}
		atOnce[in.Caps[0].Class] = in.Sequences[0]
	}
	if atOnce["chat"] <= atOnce["batch"] { // what they do not serve
		t.Errorf("sequences at once without a class: %v", atOnce)
	}
	checkConfirmed(t, res.Plan)
	if p := res.Plan; p.Objective.Value != 5 || *p.Objective.Gap > 0.6 {
		t.Errorf("%g devices, gap %g", p.Objective.Value, *p.Objective.Gap)
	}
}

// checkConfirmed checks that a plan carries what other random numbers showed of it, and what slower runs
// do to it, and that runs which nobody has seen agree.
func checkConfirmed(t *testing.T, plan *formats.Plan) {
	t.Helper()
	c := plan.Certificate
	if c == nil || c.LoadFactor != 1 || plan.Objective.Basis != formats.BasisSimulation {
		t.Fatalf("certified %+v, basis %q", c, plan.Objective.Basis)
	}
	for i := range c.Models {
		if m := &c.Models[i]; len(m.Slower) != 2 || m.Slower[1].P99US <= m.P99US {
			t.Errorf("%s has p99 %v, and where iterations take longer %+v", m.Key(), m.P99US, m.Slower)
		}
	}
	sc, err := sim.NewScenario(plan)
	if err != nil {
		t.Fatal(err)
	}
	sc.Seed, sc.Duration = 991, c.DurationUS.D()
	runs := sim.Replications{Scenario: sc}
	if err := runs.Extend(t.Context(), 20); err != nil {
		t.Fatal(err)
	}
	for i, share := range plan.AttainmentShares() {
		if attained := stat.Mean(runs.AttainmentPerRun(i), nil); attained < share-.005 {
			t.Errorf("%s attains %.4f, %g was asked", c.Models[i].Key(), attained, share)
		}
	}
}
