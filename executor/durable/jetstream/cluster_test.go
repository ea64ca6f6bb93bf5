package jetstream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"inferplan/executor/durable"
	"inferplan/testkit/natstest"
)

// newCluster is three nodes, each a process.
func newCluster(t testing.TB) *natstest.Cluster {
	t.Helper()
	c, err := natstest.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return c
}

// Nodes of the cluster are killed, one at a time. What was accepted is served, and ends
// once.
func TestNodesAreKilled(t *testing.T) {
	kills, between, pause := 1, time.Second, 50*time.Millisecond
	if os.Getenv("INFERPLAN_LONG") != "" {
		kills, between, pause = 30, 1500*time.Millisecond, 0
	}
	c := newCluster(t)
	front, back := place(c.URL, Options{}).Open(t), place(c.URL, Options{}).Open(t)
	defer front.Close()
	defer back.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	var mu sync.Mutex
	accepted, unclear, ends := map[string]bool{}, 0, map[string]int{}
	busy, stop := context.WithCancel(ctx)
	var writers, servers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := 0; busy.Err() == nil; i++ {
				id := fmt.Sprintf("w%d-%d", w, i)
				_, err := front.Accept(ctx, &durable.Record{ID: id, Data: []byte(id)})
				mu.Lock()
				if err == nil {
					accepted[id] = true
				} else {
					unclear++
				}
				mu.Unlock()
				time.Sleep(pause)
			}
		})
	}
	all, served := context.WithCancel(ctx)
	for range 4 {
		servers.Go(func() {
			for {
				st, err := back.Claim(all)
				if err != nil {
					return
				}
				err = back.Append(ctx, st.ID, len(st.Text), []byte("text"), 1)
				if err == nil {
					err = back.Finish(ctx, st.ID, st.Data)
				}
				mu.Lock()
				if err == nil {
					ends[st.ID]++
				} else if !errors.Is(err, durable.ErrFinished) {
					t.Logf("%s: %v", st.ID, err)
				}
				mu.Unlock()
			}
		})
	}
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	for range kills {
		time.Sleep(time.Duration(r.Int64N(int64(between))))
		i := r.IntN(3)
		c.Kill(i)
		time.Sleep(time.Duration(r.Int64N(int64(between))))
		if err := c.Again(i); err != nil {
			t.Fatal(err)
		}
		// The next node is killed when this one is back: two of three must be there.
		time.Sleep(between)
	}
	// A slow machine accepts little while a node is away: the writers go on until there is
	// something to judge.
	waitFor(&mu, func() bool { return len(accepted) >= 10*kills })
	stop()
	writers.Wait()
	waitFor(&mu, func() bool { return len(ends) >= len(accepted) })
	served()
	servers.Wait()
	lost, twice := tally(ctx, t, front, accepted, ends)
	t.Logf("%d kills: %d accepted, %d unclear, %d ended, %d lost, %d ended twice (seed %d)", kills, len(accepted), unclear, len(ends), lost, twice, seed)
	if twice > 0 || len(accepted) < 10*kills {
		t.Errorf("%d accepted, %d ended twice", len(accepted), twice)
	}
}

// waitFor waits until done holds under mu, two minutes at most.
func waitFor(mu *sync.Mutex, done func() bool) {
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		mu.Lock()
		ok := done()
		mu.Unlock()
		if ok {
			return
		}
	}
}

// tally counts what was accepted and is lost, and what ended twice.
func tally(ctx context.Context, t *testing.T, s durable.Store, accepted map[string]bool, ends map[string]int) (lost, twice int) {
	for id := range accepted {
		st, err := s.Get(ctx, id)
		if err != nil || string(st.Data) != id || string(st.Result) != id {
			lost++
			t.Errorf("%s: %+v, %v", id, st, err)
		}
	}
	for _, n := range ends {
		if n > 1 {
			twice++
		}
	}
	return lost, twice
}
