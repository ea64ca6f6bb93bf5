package executor

import (
	"strings"
	"testing"
	"time"
)

func TestRatesAreServed(t *testing.T) {
	s, _ := serve(t, gearPlan(1, time.Millisecond, time.Millisecond), replayOptions(false))
	if code, text := s.get(t, "http://"+s.Metrics+"/rates"); code != 200 || !strings.HasPrefix(text, "second,count\n") {
		t.Errorf("%d %q", code, text)
	}
	for _, last := range []string{"0", "-1", "day"} {
		if code, text := s.get(t, "http://"+s.Metrics+"/rates?last="+last); code != 400 || !strings.Contains(text, "expected a number of seconds") {
			t.Errorf("last=%s: %d %q", last, code, text)
		}
	}
	other, _ := serve(t, onePlan(time.Millisecond, 1, 1, patient), replayOptions(false))
	if code, text := other.get(t, "http://"+other.Metrics+"/rates"); code != 404 || !strings.Contains(text, "no gears") {
		t.Errorf("a plan without gears: %d %q", code, text)
	}
}
