package check

import (
	"slices"
	"strings"
	"testing"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/testkit/pooltest"
)

// measuredAt are documents whose profile tells how fast the machine was; all times and
// the reference are longer by factors, and those of one model by a further one.
func measuredAt(machine, all, second float64) *formats.Profile {
	p := pooltest.Documents().Profile
	return p.WithTimes(func(i int, m *formats.Measurement) func(*formats.Latency) {
		factor := machine * all
		if i == 1 {
			factor *= second
		}
		m.ReferenceUS = document.Micros(1e6 * machine)
		return func(l *formats.Latency) { *l = l.Scaled(factor, factor) }
	})
}

// Where profiles tell how fast the machine was, a slower machine is no slower model. A
// model that got slower is found, and so are all of them together.
func TestGateOfASlowerMachine(t *testing.T) {
	today := pooltest.Documents()
	today.Cluster.Pools = slices.DeleteFunc(today.Cluster.Pools, func(p formats.Pool) bool { return p.Device != "cpu-1" })
	today.Profile = measuredAt(1, 1, 1)
	today.Workload.Section = formats.ModelsOf(today.Workload)[1:]
	plan := copyOf(t, solve(t, today))
	old := today.Profile
	for _, c := range []struct {
		name                 string
		machine, all, second float64
		verdict, says        string
	}{
		{"a slower machine", 1.06, 1, 1, Pass, ""},
		{"a faster machine", 0.94, 1, 1, Pass, ""},
		{"a slower model on a faster machine", 0.95, 1, 1.06, Fail, "of ocr"},
		{"slower models", 1, 1.06, 1, Fail, "rps of"},
		{"a machine that is no longer what it was", 1.15, 1, 1, Fail, "machine of cpu-1"},
	} {
		in := today
		in.Profile = measuredAt(c.machine, c.all, c.second)
		r := verdict(t, GateInput{Plan: plan, Today: in, OldProfiles: []*formats.Profile{old}})
		if r.Verdict != c.verdict || !strings.Contains(text(r), c.says) {
			t.Errorf("%s: expected %s, %q\n%s", c.name, c.verdict, c.says, text(r))
		}
	}
}

// A profile that cuts a model at other tensors is compared by the whole model.
func TestGateOfOtherCuts(t *testing.T) {
	today := pooltest.Documents()
	plan := copyOf(t, solve(t, today))
	old := today.Profile
	cut := func(factor float64) *formats.Profile {
		p := pooltest.Documents().Profile
		m := &p.Models[0]
		m.Blocks = slices.Delete(m.Blocks, 1, 2)
		for i := range m.Measurements {
			ms := &m.Measurements[i]
			ms.Blocks = slices.Delete(ms.Blocks, 1, 2)
			whole := ms.WholeModel.Scaled(factor, factor)
			ms.WholeModel = &whole
		}
		return p
	}
	for factor, want := range map[float64]string{1: Pass, 1.2: Fail} {
		today.Profile = cut(factor)
		r := verdict(t, GateInput{Plan: plan, Today: today, OldProfiles: []*formats.Profile{old}})
		if r.Verdict != want || !strings.Contains(text(r), "cut at other tensors than for the plan") {
			t.Errorf("%g times as slow: expected %s\n%s", factor, want, text(r))
		}
	}
}
