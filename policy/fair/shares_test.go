package fair

import (
	"testing"
	"time"

	"inferplan/policy/policies"
	"inferplan/testkit/policytest"
)

func oneModel(t *testing.T, rps float64) *ClientShares {
	t.Helper()
	tables, err := policies.Compile(policytest.Single(4, false, policytest.Model{Batch: 4, First: 12 * time.Millisecond, More: 4 * time.Millisecond, SLO: 100 * time.Millisecond, RPS: rps}))
	if err != nil {
		t.Fatal(err)
	}
	return New(tables)
}

// Levels are those of max-min shares: .8 of 600 is divided so that who asks for
// 40 has it, and the two others have equal parts of the rest.
func TestLevelIsMaxMin(t *testing.T) {
	s := oneModel(t, 600)
	for at := time.Duration(0); at < 5*time.Second; at += time.Millisecond {
		for number, every := range map[int32]time.Duration{1: 25 * time.Millisecond, 2: time.Millisecond, 3: time.Millisecond} {
			if at%every == 0 && s.Admit(at, 0, number, 1) {
				s.RecordEnd(at, 0, number, 1, false)
			}
		}
	}
	if level := s.models[0].fairRate; level < 210 || level > 230 {
		t.Errorf("level %.1f, expected 220", level)
	}
}

// Nobody is refused while there is room, nor alone, nor without a name.
func TestRoomIsForAll(t *testing.T) {
	s := oneModel(t, 600)
	for range 1000 {
		if !s.Admit(0, 0, 7, 1) || !s.Admit(0, 0, 0, 1) {
			t.Fatal("a client alone is refused")
		}
	}
	if !s.Admit(0, 0, 8, 1) {
		t.Error("a second client is refused")
	}
	if s.Admit(0, 0, 7, 1) {
		t.Error("the first one still comes in")
	}
	s.RecordEnd(0, 0, 7, 1000, false)
	if !s.Admit(time.Millisecond, 0, 7, 1) {
		t.Error("refused although there is room")
	}
	var none *ClientShares
	if !none.Admit(0, 0, 7, 1) {
		t.Error("refused where nothing is shared")
	}
	none.RecordEnd(0, 0, 7, 1, true)
}

// Clients that are gone are forgotten, and the usual request allocates nothing.
func TestClientsAreForgotten(t *testing.T) {
	s := oneModel(t, 600)
	for i := range int32(1000) {
		s.Admit(0, 0, i+1, 1)
		s.RecordEnd(0, 0, i+1, 1, false)
	}
	now := 2 * forgetAfter
	if n := testing.AllocsPerRun(2000, func() {
		now += time.Millisecond
		s.Admit(now, 0, 1, 1)
		s.RecordEnd(now, 0, 1, 1, false)
	}); n != 0 {
		t.Errorf("%v allocations a request", n)
	}
	if len(s.slotOf) != 1 {
		t.Errorf("%d clients are known, expected 1", len(s.slotOf))
	}
}
