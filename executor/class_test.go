package executor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"inferplan/executor/httplimit"
	"inferplan/executor/oip"
	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/policies"
)

// classPlan is one model with two SLO classes, gold (the default) and bulk, that
// take turns on two devices, and a model without classes.
func classPlan(gold, bulk time.Duration) *formats.Plan {
	p := onePlan(time.Millisecond, 4, 2, gold)
	p.Pools[0].Sharing = formats.SharingTime
	p.Policy.Params = nil
	p.Deployment[0].Class, p.Deployment[0].Pipelines[0].Stages[0].GPUs = "gold", 0.5
	for _, k := range []formats.ModelClass{{Model: "m", Class: "bulk"}, {Model: "plain"}} {
		m := p.Deployment[0]
		m.Model, m.Class = k.Model, k.Class
		p.Deployment = append(p.Deployment, m)
	}
	complete(p)
	for i := range p.Deployment[1:] {
		formats.PoolOf(p).Models[1+i].SLOUS = us(bulk)
	}
	return p
}

// classWatch notes which deadline each request got and which requests shared a
// batch.
type classWatch struct {
	policy.Policy
	t       *policy.Tables
	mu      *sync.Mutex
	asked   map[int32]policy.Event
	budgets map[int32]map[time.Duration]int // by model
	wrong   *[]string
}

func (w *classWatch) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	w.Policy.Handle(now, ev, out)
	w.mu.Lock()
	defer w.mu.Unlock()
	if ev.Kind == policy.Arrival {
		w.asked[ev.Req] = *ev
		if w.budgets[ev.Model] == nil {
			w.budgets[ev.Model] = map[time.Duration]int{}
		}
		w.budgets[ev.Model][ev.Deadline-ev.ArrivedAt]++
	}
	for i := range out.List {
		a := &out.List[i]
		if a.Kind != policy.Dispatch {
			continue
		}
		reqs, _ := out.BatchOf(a)
		for _, r := range reqs {
			if of, runs := w.asked[r].Model, w.t.Pipelines[a.Pipeline].Model; of != runs {
				*w.wrong = append(*w.wrong, fmt.Sprintf("a request for %s in a batch of %s", w.t.Models[of].Key(), w.t.Models[runs].Key()))
			}
		}
	}
}

// Each request gets the deadline of the class that it names, the default's where
// it names none, and runs with its class; figures and series are per class.
func TestClassesAreServedApart(t *testing.T) {
	gold, bulk := patient, 2*patient
	o := replayOptions(true)
	var mu sync.Mutex
	var wrong []string
	budgets := map[int32]map[time.Duration]int{}
	o.NewPolicy = func(tables *policy.Tables, spec formats.PolicySpec) (policy.Policy, error) {
		p, err := policies.New(spec, tables)
		return &classWatch{Policy: p, t: tables, mu: &mu, asked: map[int32]policy.Event{}, budgets: budgets, wrong: &wrong}, err
	}
	x := open(t, classPlan(gold, bulk), o)

	infos := x.Models().Models()
	if len(infos) != 2 || strings.Join(infos[0].Classes, " ") != "gold bulk" || infos[1].Classes != nil {
		t.Fatalf("catalog %+v", infos)
	}
	asks := []struct {
		model, class string
		index        int
	}{{"m", "", 0}, {"m", "gold", 0}, {"m", "bulk", 1}, {"plain", "", 2}}
	const rounds = 8
	var wg sync.WaitGroup
	for range rounds {
		for _, a := range asks {
			info, err := x.Models().Find(a.model, "")
			if err != nil {
				t.Fatal(err)
			}
			r := sampleOf(x, map[string]int{"m": 0, "plain": 1}[info.Name], 4)
			r.Class = a.class
			wg.Go(func() {
				resp, err := x.Infer(context.Background(), r)
				if err != nil {
					t.Errorf("%s/%s: %v", a.model, a.class, err)
					return
				}
				resp.Release()
			})
		}
	}
	wg.Wait()
	for _, class := range []string{"silver", "Gold"} {
		r := sampleOf(x, 0, 1)
		r.Class = class
		_, err := x.Infer(context.Background(), r)
		var e *oip.Error
		if !errors.As(err, &e) || e.Code != httplimit.CodeInvalid || !strings.Contains(e.Error(), `no class "`+class+`"`) {
			t.Errorf("class %s: %v", class, err)
		}
	}

	mu.Lock()
	for _, w := range wrong {
		t.Error(w)
	}
	for i, want := range []struct {
		budget time.Duration
		n      int
	}{{gold, 2 * 4 * rounds}, {bulk, 4 * rounds}, {bulk, 4 * rounds}} {
		if got := budgets[int32(i)]; len(got) != 1 || got[want.budget] != want.n {
			t.Errorf("budgets of models[%d]: %v, want %d of %v", i, got, want.n, want.budget)
		}
	}
	mu.Unlock()

	rep := x.Report()
	for i, want := range []struct {
		key string
		n   int64
	}{{"m/gold", 2 * 4 * rounds}, {"m/bulk", 4 * rounds}, {"plain", 4 * rounds}} {
		if m := rep.Models[i]; m.Key().String() != want.key || m.Completed != want.n || m.Requests != want.n {
			t.Errorf("row %d: %s with %d of %d, want %s with %d", i, m.Key(), m.Completed, m.Requests, want.key, want.n)
		}
	}
	if err := rep.Validate(); err != nil {
		t.Error(err)
	}
	// Clients of the protocol see one model.
	if s := x.Statistics("m", ""); len(s) != 1 || s[0].InferenceCount != 3*4*rounds || s[0].Inference.Success.Count != 3*rounds {
		t.Errorf("statistics %+v", s)
	}
	if !x.ModelReady("m", "") || x.ModelReady("m/gold", "") {
		t.Error("readiness")
	}
	if got := counterOf(t, x.Gatherer(), "inferplan_requests_total", map[string]string{"model": "m", "class": "bulk", "outcome": "in_time"}); got != 4*rounds {
		t.Errorf("%v of m/bulk in time", got)
	}
	if got := counterOf(t, x.Gatherer(), "inferplan_requests_total", map[string]string{"model": "plain", "class": "", "outcome": "in_time"}); got != 4*rounds {
		t.Errorf("%v of plain in time", got)
	}
}

// counterOf reads one series; labels must be all of its labels.
func counterOf(t *testing.T, g prometheus.Gatherer, name string, labels map[string]string) float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			same := len(m.GetLabel()) == len(labels)
			for _, l := range m.GetLabel() {
				want, ok := labels[l.GetName()]
				same = same && ok && want == l.GetValue()
			}
			if same {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Errorf("no series %s%v", name, labels)
	return 0
}

// A plan without classes has no label class: its series are as ever.
func TestNoClassNoLabel(t *testing.T) {
	x := open(t, onePlan(time.Millisecond, 1, 1, patient), replayOptions(true))
	counterOf(t, x.Gatherer(), "inferplan_requests_total", map[string]string{"model": "m", "outcome": "in_time"})
	if x.Models().Models()[0].Classes != nil {
		t.Error("the catalog names classes")
	}
}

// A request decoded under one plan may meet another: its class is looked up in
// the plan that answers it.
func TestClassGoneWithThePlan(t *testing.T) {
	x := open(t, classPlan(patient, 2*patient), replayOptions(true))
	r := sampleOf(x, 0, 4)
	r.Class = "bulk"
	if err := x.Reload(context.Background(), onePlan(time.Millisecond, 4, 1, patient), "other"); err != nil {
		t.Fatal(err)
	}
	_, err := x.Infer(context.Background(), r)
	var e *oip.Error
	if !errors.As(err, &e) || e.Code != httplimit.CodeInvalid || !strings.Contains(e.Error(), `model "m" has no class "bulk" in the plan in force`) {
		t.Errorf("%v", err)
	}
	r = sampleOf(x, 0, 4)
	if resp, err := x.Infer(context.Background(), r); err != nil {
		t.Error(err)
	} else {
		resp.Release()
	}
}
