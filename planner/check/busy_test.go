package check

import (
	"slices"
	"strings"
	"testing"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/testkit/pooltest"
)

// A profile of the same models that was taken while other work had the processor fails
// nothing: its CPU times are compared, and that is said.
func TestGateOfABusyMachine(t *testing.T) {
	today := pooltest.Documents()
	today.Cluster.Pools = slices.DeleteFunc(today.Cluster.Pools, func(p formats.Pool) bool { return p.Device != "cpu-1" })
	today.Workload.Section = formats.ModelsOf(today.Workload)[1:]
	waits := func(factor float64) *formats.Profile {
		p := pooltest.Documents().Profile
		for m := range p.Models {
			for i := range p.Models[m].Measurements {
				ms := &p.Models[m].Measurements[i]
				for b := range ms.Blocks {
					slowByWaiting(&ms.Blocks[b], factor)
				}
				slowByWaiting(ms.WholeModel, factor)
			}
		}
		return p
	}
	today.Profile = waits(1)
	plan := copyOf(t, solve(t, today))
	old := today.Profile
	today.Profile = waits(4)
	r := verdict(t, GateInput{Plan: plan, Today: today, OldProfiles: []*formats.Profile{old}})
	if r.Verdict != Pass || !strings.Contains(strings.Join(r.Notes, "\n"), "CPU times are compared") {
		t.Errorf("%s\n%s", text(r), strings.Join(r.Notes, "\n"))
	}
	// A model that takes half as long again in CPU time is found all the same.
	pooltest.Slower(today.Profile, 1, -1, 1.5)
	for i := range today.Profile.Models[1].Measurements {
		for b := range today.Profile.Models[1].Measurements[i].Blocks {
			l := &today.Profile.Models[1].Measurements[i].Blocks[b]
			l.CPUUS += l.CPUUS / 2
		}
		whole := today.Profile.Models[1].Measurements[i].WholeModel
		whole.CPUUS += whole.CPUUS / 2
	}
	if r := verdict(t, GateInput{Plan: plan, Today: today, OldProfiles: []*formats.Profile{old}}); r.Verdict != Fail {
		t.Errorf("half as slow again: %s", text(r))
	}
}

// slowByWaiting makes a time wait for the processor: so many times its CPU time.
func slowByWaiting(l *formats.Latency, factor float64) {
	l.CPUUS = l.WallUS
	l.WallUS = document.Micros(float64(l.WallUS) * factor)
}
