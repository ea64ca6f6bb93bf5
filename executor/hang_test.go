package executor

import (
	"context"
	"sync"
	"syscall"
	"testing"
	"time"
)

// stopped is how long requests waited around the stop of a worker's process, and
// how they ended.
func stopped(t *testing.T, x *Executor, n int, then func(pid int)) (longest time.Duration, how map[string]int) {
	t.Helper()
	c := x.core.Load()
	how = map[string]int{}
	var wg sync.WaitGroup
	var mu sync.Mutex
	ask := func() {
		began := time.Now()
		resp, err := x.Infer(context.Background(), sample(x, 1))
		if err == nil {
			resp.Release()
		}
		mu.Lock()
		defer mu.Unlock()
		longest = max(longest, time.Since(began))
		how[reasonOf(err)]++
	}
	var pid int
	c.Loop.CallInRound(func() {
		pid = workersOf(c).Devices[0].Process.PID()
		syscall.Kill(pid, syscall.SIGSTOP)
	})
	for range n {
		wg.Go(ask)
		time.Sleep(20 * time.Millisecond)
	}
	wg.Wait()
	then(pid)
	return longest, how
}

// A worker that hangs is known by its run after a second, or ten times what was
// planned: its requests end, other devices take what comes, and it is started
// again.
func TestHungWorkerIsReplaced(t *testing.T) {
	o := replayOptions(false)
	o.HangTimeout = 0
	x := open(t, onePlan(5*time.Millisecond, 1, 2, 300*time.Millisecond), o)
	longest, how := stopped(t, x, 60, func(int) {})
	c := x.core.Load()
	until(func() (back bool) {
		c.Loop.CallInRound(func() { back = workersOf(c).Devices[0].Process != nil && workersOf(c).Devices[0].Generation == 2 })
		return back
	})
	for reason := range how {
		if reason != "served" && reason != "worker_lost" && reason != "deadline" {
			t.Errorf("ended as %v", how)
		}
	}
	if longest > 15*time.Second || how["served"] == 0 {
		t.Errorf("the longest waited %v; ended as %v", longest, how)
	}
	if q, s := held(x); q != 0 || s != 0 {
		t.Errorf("%d request slots and %d memory slots are still held", q, s)
	}
}

// Who waits for a worker that may hang for an SLO beyond the deadline has an
// answer, with the reason, before anybody knows whether it does.
func TestRequestsOfAHungWorkerAreAnswered(t *testing.T) {
	x := open(t, onePlan(5*time.Millisecond, 1, 1, 300*time.Millisecond), replayOptions(false))
	longest, how := stopped(t, x, 10, func(pid int) { syscall.Kill(pid, syscall.SIGCONT) })
	if how["worker_lost"] == 0 || how["worker_lost"]+how["deadline"] != 10 || longest > 15*time.Second {
		t.Errorf("the longest waited %v; ended as %v", longest, how)
	}
	until(func() bool {
		q, s := held(x)
		return q == 0 && s == 0
	})
}

// With a short SLO, too, who waits for a worker that hangs has an answer an SLO past
// the deadline: within three SLOs with the time until somebody looks. A busy machine gets
// three tries.
func TestHungWorkerUnderShortSLO(t *testing.T) {
	const slo = 100 * time.Millisecond
	var longest time.Duration
	for range 3 {
		x := open(t, onePlan(5*time.Millisecond, 1, 1, slo), replayOptions(false))
		var how map[string]int
		longest, how = stopped(t, x, 10, func(pid int) { syscall.Kill(pid, syscall.SIGCONT) })
		if how["worker_lost"] == 0 || how["worker_lost"]+how["deadline"] != 10 {
			t.Fatalf("ended as %v", how)
		}
		if longest <= 3*slo {
			return
		}
	}
	t.Errorf("the longest waited %v", longest)
}
