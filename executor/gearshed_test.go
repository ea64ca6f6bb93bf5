package executor

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"inferplan/executor/httplimit"
	"inferplan/executor/oip"
	"inferplan/policy"
)

// What a cascade cannot answer in time is refused when it comes, with the reason and
// when to ask again; what it takes is answered.
func TestCascadeSheds(t *testing.T) {
	x := open(t, gearPlan(1, 6*time.Millisecond, 38*time.Millisecond), replayOptions(true))
	var wg sync.WaitGroup
	var mu sync.Mutex
	answered, refused := 0, 0
	for range 800 { // more than two seconds of work, for an SLO of .4
		wg.Go(func() {
			resp, err := x.Infer(context.Background(), sample(x, 1))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				resp.Release()
				answered++
				return
			}
			e, ok := errors.AsType[*oip.Error](err)
			if !ok || e.Code != httplimit.CodeDropped || e.Reason != policy.ReasonDeadline.String() || e.RetryAfter <= 0 || e.RetryAfter > 5*time.Second {
				t.Errorf("refused with %+v", err)
			}
			refused++
		})
	}
	wg.Wait()
	if answered < 40 || refused < 400 {
		t.Errorf("%d answered, %d refused, expected about 110 and 690", answered, refused)
	}
}

// A served cascade at 1.5 times its largest rate keeps nine tenths of that as goodput,
// refuses at once and is itself again within one SLO.
func TestOverloadedCascadeKeepsGoodput(t *testing.T) {
	if os.Getenv("INFERPLAN_LONG") == "" {
		t.Skip("INFERPLAN_LONG=1 serves for 25 s")
	}
	const most, slo, long = 200, 400 * time.Millisecond, 20 * time.Second
	x := open(t, gearPlan(1, 6*time.Millisecond, 38*time.Millisecond), replayOptions(true))
	rng := rand.New(rand.NewPCG(1, 1))
	var wg sync.WaitGroup
	var mu sync.Mutex
	var refusals []time.Duration
	inTime, recovered, after := 0, 0, 0
	send := func(from time.Time, rate float64, until time.Duration) {
		for at := time.Duration(0); at < until; at += time.Duration(rng.ExpFloat64() / rate * 1e9) {
			time.Sleep(time.Until(from.Add(at)))
			wg.Go(func() {
				began := time.Now()
				resp, err := x.Infer(context.Background(), sample(x, 1))
				took := time.Since(began)
				mu.Lock()
				defer mu.Unlock()
				overload := rate > most
				if err == nil {
					resp.Release()
				}
				switch settled := !overload && began.Sub(from) > slo; {
				case overload && err != nil:
					refusals = append(refusals, took)
				case overload && took <= slo:
					inTime++
				case settled && err == nil && took <= slo:
					recovered++
					fallthrough
				case settled:
					after++
				}
			})
		}
	}
	began := time.Now()
	send(began, 1.5*most, long)
	send(began.Add(long), .5*most, 5*time.Second)
	wg.Wait()
	slices.Sort(refusals)
	goodput, p99 := float64(inTime)/long.Seconds()/most, refusals[len(refusals)*99/100]
	t.Logf("goodput %.3f of the largest rate, %d refused, p50 %v, p99 %v; %d of %d in time from one SLO after", goodput, len(refusals), refusals[len(refusals)/2], p99, recovered, after)
	if goodput < .9 || p99 > 5*time.Millisecond || float64(recovered) < .95*float64(after) {
		t.Errorf("goodput %.3f, refusals p99 %v, %d of %d in time after", goodput, p99, recovered, after)
	}
}
