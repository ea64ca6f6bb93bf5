package policy

import (
	"fmt"
	"slices"
	"testing"
)

// ledgerHost is a TaskHost that writes down what it is asked. It drops a request when it is told of it.
type ledgerHost struct {
	ledger *TaskLedger
	gone   map[int32]bool // requests that the policy no longer has
	drops  int32          // the request that is dropped when the policy hears of its tasks; -1: none
	log    []string
}

func (h *ledgerHost) note(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}
func (h *ledgerHost) RequestModel(req int32) (int32, bool) { return 0, !h.gone[req] }
func (h *ledgerHost) NoteTask(*RevealedTask)               {}
func (h *ledgerHost) AnswerRequest(req int32)              { h.note("answer %d", req) }
func (h *ledgerHost) FollowTask(task int32)                { h.note("follow %d", task) }
func (h *ledgerHost) ForgetTask(task int32)                { h.note("free %d", task) }
func (h *ledgerHost) BringInputs(task, device int32)       { h.note("bring %d to %d", task, device) }

func (h *ledgerHost) HandleEvent(ev Event) {
	h.note("%v of %d, task %d", ev.Kind, ev.Req, ev.Task)
	if ev.Kind == ControlRevealed && ev.Req == h.drops {
		h.gone[ev.Req] = true
	}
}

func (h *ledgerHost) LeaveBatch(task int32, then TaskState) bool {
	t := &h.ledger.List[task]
	if h.gone[t.Req] {
		t.State = TaskUnused
		return false
	}
	t.State = then
	return true
}

func newLedger() (*TaskLedger, *ledgerHost) {
	l := &TaskLedger{}
	h := &ledgerHost{ledger: l, gone: map[int32]bool{}, drops: -1}
	l.Host = h
	return l, h
}

// reveal has a task become known that reads others.
func (l *TaskLedger) reveal(req int32, inputs ...int32) int32 {
	r := &l.Reveals
	task := r.TakeSlot()
	r.Tasks = append(r.Tasks, RevealedTask{Req: req, Task: task, FirstInput: int32(len(r.Inputs)), NumInputs: int32(len(inputs))})
	r.Inputs = append(r.Inputs, inputs...)
	return task
}

// The policy hears nothing of the tasks of a request that it has dropped, before they become known or while it is told of them.
func TestTasksOfDroppedRequestsAreNotTold(t *testing.T) {
	l, h := newLedger()
	h.gone[0], h.drops = true, 1
	for req := range int32(3) {
		l.reveal(req, -1)
		l.reveal(req, -1)
	}
	l.RevealTasks()
	want := []string{
		fmt.Sprintf("%v of 1, task -1", ControlRevealed),
		fmt.Sprintf("%v of 2, task -1", ControlRevealed), fmt.Sprintf("%v of 2, task 4", TaskRevealed), fmt.Sprintf("%v of 2, task 5", TaskRevealed),
	}
	if !slices.Equal(h.log, want) {
		t.Errorf("told %q, expected %q", h.log, want)
	}
}

// Inputs are brought once all that a task reads has ended, to the device that was named last.
func TestInputsAreBroughtOnceTheyAreThere(t *testing.T) {
	l, h := newLedger()
	first := l.reveal(0, -1)
	second := l.reveal(0, first)
	l.RevealTasks()
	l.PlaceInputs(second, 3)
	ticket := l.List[second].Ticket
	l.PlaceInputs(second, 4)
	if l.IsPlaceCurrent(second, ticket) || !l.IsPlaceCurrent(second, ticket+1) {
		t.Error("the answer to the earlier place is still awaited, or that to the later one is not")
	}
	h.log = nil
	l.List[first].State = TaskBatched
	l.FinishTasks([]int32{first})
	if want := []string{"follow 0", "bring 1 to 4"}; !slices.Equal(h.log, want) {
		t.Errorf("%q, expected %q", h.log, want)
	}
}

// The slot of a task comes free when its batch ends, if its request is dropped while the batch runs.
func TestSlotsComeFreeWithTheirBatch(t *testing.T) {
	l, h := newLedger()
	task := l.reveal(0, -1)
	l.RevealTasks()
	l.List[task].State, h.gone[0], h.log = TaskBatched, true, nil
	l.Reveals.UnreadTasks = append(l.Reveals.UnreadTasks, task)
	l.RevealTasks()
	if len(h.log) > 0 || l.Reveals.SlotsInUse() != 1 {
		t.Fatalf("%q while the batch runs, %d slots taken", h.log, l.Reveals.SlotsInUse())
	}
	l.FinishTasks([]int32{task})
	if want := []string{"free 0"}; !slices.Equal(h.log, want) || l.Reveals.SlotsInUse() != 0 {
		t.Errorf("%q, expected %q; %d slots taken", h.log, want, l.Reveals.SlotsInUse())
	}
}
