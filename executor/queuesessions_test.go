package executor

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"inferplan/testkit/llm/fake"
)

// Every turn of a session runs on the server that had the one before, while others run beside it in another order each time.
func TestSessionsStayOnTheirServers(t *testing.T) {
	var mu sync.Mutex
	servedBy := map[string]int{} // by prompt
	d := openDesk(t, queuePlan(3, 8, time.Minute, "a"), fake.Options{Models: []string{"a"}}, func(o *Options) {
		for i := range o.Servers {
			s, err := fake.Start(fake.Options{Models: []string{"a"}, Slots: 8, Token: time.Millisecond, Fault: func(_ int, prompt string) fake.Fault {
				mu.Lock()
				defer mu.Unlock()
				servedBy[prompt] = i
				return fake.Fault{}
			}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Stop)
			o.Servers[i].URL = s.URL()
		}
	})
	const sessions, turns, tokens = 9, 5, 20
	prompt := func(session, turn int) string { return fmt.Sprint("session ", session, " turn ", turn) }
	for turn := range turns {
		var sheets [sessions]*sheet
		for k := range sessions {
			session := (4*k + turn) % sessions
			r := d.request("a", prompt(session, turn), tokens)
			r.Session, r.PromptTokens = int64(session+1), 100*(turn+1)
			sheets[session] = newSheet()
			d.q.Serve(r, sheets[session])
		}
		for session := range sessions {
			answeredWhole(t, sheets[session], "a", prompt(session, turn), tokens)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	perServer := map[int]int{}
	for session := range sessions {
		first := servedBy[prompt(session, 0)]
		perServer[first]++
		for turn := range turns {
			if at, ok := servedBy[prompt(session, turn)]; !ok || at != first {
				t.Errorf("turn %d of session %d ran on server %d, the first one on %d", turn, session, at, first)
			}
		}
	}
	if len(perServer) < 2 {
		t.Errorf("sessions by server: %v, expected several servers", perServer)
	}
}
