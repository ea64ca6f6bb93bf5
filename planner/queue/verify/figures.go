package verify

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/sim"
)

// simulatedRequests is the number of requests in a run that compares two plans, as far as minSeconds and
// maxSeconds of arrivals allow.
const (
	simulatedRequests      = 2000
	minSeconds, maxSeconds = 60, 600 // seconds
)

// Figures simulates the plan as it was promised, and the plan with today's costs, over arrivals of the same length, and returns pairs of
// figures, promised and today: the requests in time and the tail latency of each model and class, and the price of all instances. If
// today's plan cannot be simulated, note says why there are none.
func Figures(ctx context.Context, t *kind.CheckInput) (list []kind.FigurePair, note string, err error) {
	// A plan that is overloaded today is simulated more briefly, and so is the promised one.
	seconds := min(arrivalSeconds(t.Promised, nil), arrivalSeconds(t.Plan, t.Profile))
	promised, err := simulatePlan(ctx, t.Promised, nil, seconds)
	if err != nil {
		return nil, "", err
	}
	current, err := simulatePlan(ctx, t.Plan, t.Profile, seconds)
	if err != nil {
		return nil, "figures are not compared: " + err.Error(), nil
	}
	for i := range current.Models {
		// Pair each model and class with that of the promised plan.
		m := &current.Models[i]
		for k := range promised.Models {
			if o := &promised.Models[k]; o.Model == m.Model && o.Class == m.Class {
				list = append(list, kind.FigurePair{Metric: "rps", Subject: m.Key().String() + " in time", Old: o.Attainment * o.OfferedRPS, New: m.Attainment * m.OfferedRPS, Unit: "rps", Shortfall: shortfall(m)})
				list = append(list, kind.FigurePair{Metric: "p99", Subject: m.Key().String(), Old: float64(o.Latency.P99US) / 1000, New: float64(m.Latency.P99US) / 1000, Unit: "us"})
			}
		}
	}
	list = append(list, goodputPair(t, promised, current)...)
	if oldPrice, newPrice := hourlyPrice(t.Promised, t.Promised.Pools), hourlyPrice(t.Plan, t.Cluster.Pools); oldPrice > 0 || newPrice > 0 {
		list = append(list, kind.FigurePair{Metric: "cost", Subject: "instances", Old: oldPrice, New: newPrice, Unit: "USD per hour"})
	}
	return list, "", nil
}

// shortfall returns in words how many requests of a model and class are in time and how many should be, if they are fewer
// even at the upper end of the interval of the share. Otherwise it returns "".
func shortfall(m *formats.ModelReport) string {
	askedShare, upperEnd := document.ShareAt(m.Percentile), m.Attainment
	if m.AttainmentCI != nil {
		upperEnd = m.AttainmentCI[1]
	}
	if m.Requests == 0 || upperEnd >= askedShare {
		return ""
	}
	return fmt.Sprintf("%s: %.1f %% in time, asked %.5g %%", m.Key(), 100*m.Attainment, 100*askedShare)
}

// goodputPair returns, for a plan of the most goodput, the requests in time of all models and classes together: of the promised plan, and
// the most that is possible today, by the plan under check or by the best plan. Without a best plan, it returns nothing.
func goodputPair(t *kind.CheckInput, promised, current *formats.Report) []kind.FigurePair {
	if t.BestPlan == nil || t.Promised.Objective.Name != "goodput" || t.BestPlan.Objective.Name != "goodput" {
		return nil
	}
	goodput := func(r *formats.Report) (sum float64) {
		for i := range r.Models {
			sum += r.Models[i].Attainment * r.Models[i].OfferedRPS
		}
		return sum
	}
	reachable, _ := t.Reachable(goodput(current)) // with a best plan there always is one
	return []kind.FigurePair{{Metric: "rps", Subject: "objective (today: of the best plan)", Old: goodput(promised), New: reachable, Unit: "rps"}}
}

// hourlyPrice returns the price of a plan's instances, in USD per hour.
func hourlyPrice(p *formats.Plan, pools []formats.Pool) float64 {
	sum := 0.0
	for _, in := range formats.QueueOf(p).Instances {
		for i := range pools {
			if pools[i].Device == in.Device {
				sum += float64(in.TensorParallel) * pools[i].USDPerHour
			}
		}
	}
	return sum
}

// arrivalSeconds returns for how many seconds of arrivals to simulate a plan: as long as simulatedRequests take, between minSeconds and
// maxSeconds. If the rates are more work than the instances can do, it is divided by the square of the overload, because the queue then
// takes long to drain. It is at least one second or, if that is less, the time in which simulatedRequests arrive. profile has today's
// costs; if it is nil, those of the plan count.
func arrivalSeconds(p *formats.Plan, profile *formats.Profile) float64 {
	q, rps, work := formats.QueueOf(p), 0.0, 0.0
	for _, served := range p.ServedModels() {
		rps += served.RPS
	}
	for i := range q.Classes {
		work += q.Classes[i].RPS * requestTime(q, &q.Classes[i], profile)
	}
	overload := max(work/float64(len(q.Instances)), 1)
	usualSeconds := simulatedRequests / max(rps, 1e-3)
	if span := min(max(usualSeconds, minSeconds), maxSeconds) / (overload * overload); span > 1 {
		return math.Ceil(span)
	}
	return min(usualSeconds, 1)
}

// requestTime returns about how long an instance works for a mean request of a class, in seconds, on the
// instance where that is least. To the least time, in which the prompt is read beside decoding, it adds that of
// the prompt in an iteration alone. The costs are those of the profile or, without one, of the plan, which has the
// measurements of its models too. If no instance serves the class, it returns 0.
func requestTime(q *formats.QueuePlan, class *formats.QueueClass, profile *formats.Profile) float64 {
	costs := formats.Profile{LLMs: q.Models}
	if profile != nil {
		costs = *profile
	}
	minTime := math.Inf(1)
	for k := range q.Instances {
		in := &q.Instances[k]
		_, instance := costs.LLMOn(class.Model, in.Device, in.TensorParallel)
		index := slices.Index(in.Models, class.Model)
		if instance != nil && index >= 0 && index < len(in.Sequences) {
			// Up to HingeTokens, reading the weights takes longer than computing the tokens, so only those above cost time.
			costlyTokens := max(0, class.PromptMean-instance.Iteration.HingeTokens)
			promptSeconds := instance.Iteration.PromptNS * costlyTokens / 1e9
			minTime = min(minTime, minRequestTime(class, instance, in.Sequences[index])+promptSeconds)
		}
	}
	if math.IsInf(minTime, 1) {
		return 0
	}
	return minTime
}

// simulatePlan simulates a plan once for some seconds of arrivals and returns the report. The costs are those of
// the profile or, if it is nil, of the plan. A trace is replaced by Poisson arrivals.
func simulatePlan(ctx context.Context, p *formats.Plan, profile *formats.Profile, seconds float64) (*formats.Report, error) {
	plan := *p
	q := *formats.QueueOf(p)

	// Replace the costs of the plan's instances by those of the profile.
	if profile != nil {
		q.Models = nil
		for i := range formats.QueueOf(p).Models {
			m := formats.QueueOf(p).Models[i]
			var list []formats.LLMInstance
			for _, in := range m.Instances {
				_, instance := profile.LLMOn(m.Model, in.Device, in.TensorParallel)
				if instance == nil {
					return nil, fmt.Errorf("the profile has no %s on %d x %s any more", m.Model, in.TensorParallel, in.Device)
				}
				list = append(list, *instance)
			}
			m.Instances = list
			q.Models = append(q.Models, m)
		}
	}
	plan.Section = &q

	// Poisson arrivals replace a trace.
	if plan.Arrivals != nil && plan.Arrivals.Trace != "" {
		plan.Arrivals = &formats.Arrivals{Process: "poisson"}
	}
	sc, err := sim.NewScenario(&plan)
	if err != nil {
		return nil, err
	}
	sc.Seed, sc.Duration = 1, max(time.Duration(seconds*float64(time.Second)), time.Microsecond)
	res, err := sim.Replicate(ctx, sc, 1)
	if err != nil {
		return nil, err
	}
	return res.Report, nil
}

// WorkloadOf returns the workload that a plan was made for, with its SLOs as times instead of multiples. The plan has a class for each
// model; those of the same name become one class of the workload, with its rate divided between the models by shares.
func WorkloadOf(p *formats.Plan) *formats.Workload {
	q, llm := formats.QueueOf(p), &formats.LLM{}
	for i := range q.Models {
		llm.Models = append(llm.Models, q.Models[i].Model)
	}
	classIndex := map[string]int{}
	for i := range q.Classes {
		c := &q.Classes[i]
		k, known := classIndex[c.Class]
		if !known {
			k = len(llm.Classes)
			classIndex[c.Class] = k
			llm.Classes = append(llm.Classes, formats.LLMClass{
				Class: c.Class, SLO: document.SLO{Duration: c.SLOUS.D()}, Figure: c.Figure, Percentile: c.Percentile, WaitingSLO: document.SLO{Duration: c.WaitingUS.D()},
				Priority: c.Priority, MaxTokens: c.MaxTokens, Prompt: c.Prompt, Output: c.Output, Sessions: c.Sessions,
			})
		}
		class := &llm.Classes[k]
		class.Models, class.Shares, class.RPS = append(class.Models, c.Model), append(class.Shares, c.RPS), class.RPS+c.RPS
	}
	return &formats.Workload{Format: formats.FormatWorkload, Arrivals: p.Arrivals, Section: llm}
}
