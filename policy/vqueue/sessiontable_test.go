package vqueue

import (
	"testing"

	"inferplan/policy"
)

// oneInstance returns the table of sessions of an instance with 10,000 tokens of KV memory.
func oneInstance() (*sessionTable, *Instance) {
	tables := &policy.Tables{
		Kinds: []string{"a"}, Networks: make([]policy.Network, 2), Models: []policy.Model{{NumPipelines: 1}, {FirstPipeline: 1, NumPipelines: 1}}, Pipelines: []policy.Pipeline{{}, {Network: 1}},
		Devices: []policy.Device{{Instance: 0}}, Resident: [][]int32{{0}}, Instances: []policy.Instance{{MaxSequences: 4, KVTokens: 10_000}},
	}
	fleet := newInstanceFleet(tables, &Tables{RCT: make([]RCT, 4), MegaTokens: make([]int32, 2)}, servingOperations{})
	return &sessionTable{fleet: fleet}, &fleet.instances[0]
}

// turn runs a request of a session from its start to its answer.
func (t *sessionTable) turn(session int64, number, prompt, answer int32) {
	r := &Request{Session: session, promptTokens: prompt}
	t.noteStart(number, r)
	t.leave(r)
	t.noteAnswer(number, r, answer)
}

// leave takes a request out of the counts of its instance.
func (t *sessionTable) leave(r *Request) { t.fleet.instances[0].takenTokens -= r.takenTokens }

// TestPrefixTokens: a context is there after its answer, until others have used up the memory, the memory is lost, or the instance cannot
// serve the session.
func TestPrefixTokens(t *testing.T) {
	table, instance := oneInstance()
	next := &Request{Session: 5, promptTokens: 3000}
	expect := func(step string, tokens int32) {
		t.Helper()
		queueIndex, got := table.prefixOf(next)
		if got != tokens || (queueIndex >= 0) != (tokens > 0) {
			t.Errorf("%s: queue %d has %d tokens, expected %d", step, queueIndex, got, tokens)
		}
	}
	expect("nothing known", 0)
	first := &Request{Session: 5, promptTokens: 1500}
	table.noteStart(0, first)
	expect("the first turn runs", 0)
	table.leave(first)
	table.noteAnswer(0, first, 500)
	expect("the first turn is answered", 2000)
	next.promptTokens = 1800
	expect("a shorter prompt", 1799)
	next.promptTokens = 3000

	// Others become free later. A session that goes on takes only what it has grown by.
	table.turn(6, 1, 5000, 1000)
	expect("another session", 2000)
	table.turn(6, 2, 6500, 500)
	expect("it goes on", 2000)
	table.turn(7, 3, 2000, 0)
	expect("a third one", 1000)
	instance.reservedKVTokens = 700
	expect("a request is expected to take 700", 300)
	instance.reservedKVTokens = 0
	expect("it took nothing", 1000)

	// What a request takes is lost for good: at its start, and by its answer, also without a session and if it comes back.
	evicted := &Request{promptTokens: 100}
	table.noteStart(8, evicted)
	expect("a request runs", 900)
	table.leave(evicted)
	expect("it was evicted", 900)
	table.turn(0, 9, 100, 200)
	expect("a request was answered", 700)
	table.turn(0, 10, 200, 50)
	expect("a smaller one found the memory free", 700)

	// The instance is down, has another network, or has lost its memory.
	instance.isDeviceLost = true
	expect("the device is lost", 0)
	instance.isDeviceLost = false
	next.Model = 1
	expect("another network", 0)
	next.Model = 0
	expect("as before", 700)
	instance.memoryEpoch++
	expect("the network came anew", 0)

	// An answer to an earlier turn does not end the latest one.
	second, third := &Request{Session: 5, promptTokens: 100}, &Request{Session: 5, promptTokens: 100}
	table.noteStart(4, second)
	table.noteStart(5, third)
	table.leave(second)
	table.noteAnswer(4, second, 1)
	expect("the latest turn runs", 0)
}

// TestLostPrefixStaysLost: after requests that filled the memory have left, no context is there. A session that goes on takes memory for what
// was lost of its context, too.
func TestLostPrefixStaysLost(t *testing.T) {
	table, instance := oneInstance()
	next := &Request{Session: 5, promptTokens: 9000}
	table.turn(5, 0, 3000, 1000)
	table.turn(0, 1, 9999, 0)
	if _, tokens := table.prefixOf(next); tokens != 1 {
		t.Errorf("the session has %d tokens after others left it 1", tokens)
	}
	table.turn(0, 2, 50_000, 0)
	if queueIndex, tokens := table.prefixOf(next); queueIndex != noQueue || tokens != 0 || instance.lostThrough != instance.freedTokens {
		t.Errorf("after others filled the memory, the session has %d tokens on %d; %d of %d are lost", tokens, queueIndex, instance.lostThrough, instance.freedTokens)
	}
	table.turn(5, 3, 6000, 0)
	table.turn(6, 4, 5000, 0)
	if _, tokens := table.prefixOf(next); tokens != 5000 {
		t.Errorf("the session has %d tokens, expected what 5000 of another one leave of 10000", tokens)
	}
}

// TestSessionsTakePlaces: of more sessions than the table has entries, the latest are known.
func TestSessionsTakePlaces(t *testing.T) {
	table, instance := oneInstance()
	const count = 10 * sessionSets * sessionWays
	for session := int64(1); session <= count; session++ {
		table.turn(session, int32(session), 1, 0)
	}
	if len(table.entries) != sessionSets*sessionWays {
		t.Errorf("%d entries", len(table.entries))
	}
	instance.freedTokens = 0
	known := 0
	for session := int64(count); session > count-1000; session-- {
		if table.find(session) != nil {
			known++
		}
	}
	if known < 990 || table.find(1) != nil {
		t.Errorf("%d of the latest 1000 sessions are known, the first: %v", known, table.find(1))
	}
	if n := testing.AllocsPerRun(100, func() { table.turn(3, 1, 10, 10) }); n > 0 {
		t.Errorf("%g allocations for a turn", n)
	}
}
