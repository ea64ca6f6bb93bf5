package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"inferplan/engine"
)

// swapper is the part of a worker that loads stages onto the device and removes them, beside the runs of others.
// Its goroutine has its own thread and does one swap at a time. The worker's loop gives it swaps. The loop itself
// removes stages from the table, so that no stage is removed while it runs.
type swapper struct {
	s      *server
	memory int64 // bytes of the device for swapped stages, 0 without a limit
	ctx    context.Context
	cancel context.CancelFunc
	queue  chan swapJob
	ended  chan struct{} // closed when the goroutine has ended
	open   atomic.Int32  // number of swaps that are not answered yet

	// The fields below belong to the goroutine once it runs.
	kept  map[uint32]*keptModel // models by stage
	taken int64
	out   []byte
}

// keptModel is the model of a stage that may be swapped in.
type keptModel struct {
	spec  StageSpec
	sub   engine.Submodel // its ONNX field is set only while it is loaded
	bytes []byte          // the model, mapped from memory; nil if it is read from its file
}

// swapJob is a swap, with the stages that the loop has removed from the table for it.
type swapJob struct {
	Swap
	gone []*stage
}

// maxSwaps is the number of swaps that may wait in a worker. A parent sends one at a time.
const mostSwaps = 16

func newSwapper(ctx context.Context, s *server, memory int64) *swapper {
	w := &swapper{s: s, memory: memory, kept: map[uint32]*keptModel{}}
	w.ctx, w.cancel = context.WithCancel(ctx)
	return w
}

// keepStage cuts a stage, or maps the model that another worker has cut. It is part of the set-up.
func (w *swapper) keep(ctx context.Context, p []byte) (*Kept, error) {
	q, err := parseJSON[Keep](TypeKeep, p)
	if err != nil {
		return nil, err
	}
	fd := -1
	if q.Size > 0 || q.Room > 0 {
		if fd, err = w.s.descriptor(TypeKeep); err != nil {
			return nil, err
		}
		defer unix.Close(fd)
	}
	id := q.Stage.ID
	if err := q.Stage.check(); err != nil {
		return nil, err
	}
	if w.kept[id] != nil || w.queue != nil {
		return nil, fmt.Errorf("%w: stage %d is kept already, or swaps have begun", ErrProtocol, id)
	}

	// Cut the stage, unless another worker did.
	start, m := monotonic(), &keptModel{spec: q.Stage, sub: q.Submodel}
	if q.Size == 0 {
		sub, err := w.s.loader.Cut(ctx, &q.Stage)
		if err != nil {
			return nil, fmt.Errorf("cut blocks [%d,%d) of %s: %w", q.Stage.From, q.Stage.To, q.Stage.Model, err)
		}
		m.sub = *sub
		if q.Size, err = storeModel(fd, sub, q.Room); err != nil {
			return nil, err
		}
		m.sub.ONNX = nil
	}

	// Map the model.
	if q.Size > 0 {
		if m.bytes, err = unix.Mmap(fd, 0, int(q.Size), unix.PROT_READ, unix.MAP_PRIVATE); err != nil {
			return nil, fmt.Errorf("map the model of stage %d (%d bytes): %w", id, q.Size, err)
		}
	}
	w.kept[id] = m
	l := Loaded{ID: id, Inputs: m.sub.Inputs, Outputs: m.sub.Outputs, WeightBytes: m.sub.WeightBytes, LoadNS: monotonic() - start}
	return &Kept{Loaded: l, Size: q.Size, Submodel: m.sub}, nil
}

// storeModel writes a model into memory of the host if it fits, and returns its size, or 0 if it does not fit. If
// the submodel has no bytes, only the memory is reserved.
func storeModel(fd int, sub *engine.Submodel, room int64) (int64, error) {
	size := int64(len(sub.ONNX))
	if size == 0 {
		size = sub.WeightBytes
	}
	if fd < 0 || size == 0 || size > room {
		return 0, nil
	}
	if err := unix.Ftruncate(fd, size); err != nil {
		return 0, fmt.Errorf("memory for the model %s (%d bytes): %w", sub.Model, size, err)
	}
	for done := 0; done < len(sub.ONNX); {
		n, err := unix.Pwrite(fd, sub.ONNX[done:], int64(done))
		if err != nil && err != unix.EINTR {
			return 0, fmt.Errorf("keep the model %s in memory: %w", sub.Model, err)
		}
		done += max(n, 0)
	}
	return size, nil
}

// enqueue gives a swap to the goroutine, which does it and answers.
func (w *swapper) begin(p []byte) error {
	q, err := parseJSON[Swap](TypeSwap, p)
	if err != nil {
		return err
	}
	if err := q.check(); err != nil {
		return err
	}
	if w.queue == nil {
		w.queue, w.ended = make(chan swapJob, mostSwaps), make(chan struct{})
		go w.work()
	}
	if w.open.Load() == mostSwaps {
		return fmt.Errorf("%w: more than %d swaps at once", ErrProtocol, mostSwaps)
	}
	w.s.relax()
	job := swapJob{Swap: q}
	if !q.In {
		for i := range q.Stages {
			if st := w.s.unlist(q.Stages[i].ID); st != nil {
				job.gone = append(job.gone, st)
			}
		}
	}
	w.open.Add(1)
	w.queue <- job
	return nil
}

// runSwaps does swaps until the queue is closed.
func (w *swapper) work() {
	defer close(w.ended)
	runtime.LockOSThread()
	if cpus := w.s.device.CPUs; len(cpus) > 0 {
		// The swaps of a device use no other CPUs than the device. The engine's threads inherit the set.
		if unpin, err := engine.PinThread(cpus...); err == nil {
			defer unpin()
		}
	}
	for job := range w.queue {
		a := Swapped{ID: job.ID, Start: monotonic()}
		var err error
		if job.In {
			a.Cold, err = w.bring(&job)
		} else {
			err = w.take(&job)
		}
		if err != nil {
			a.Code, a.Text = codeOf(err), err.Error()
		}
		a.End = monotonic()
		if w.ctx.Err() == nil {
			w.answer(&a)
		}
		if w.s.alone && len(w.queue) == 0 {
			debug.FreeOSMemory() // frees the garbage of loading
		}
		w.open.Add(-1)
	}
}

// sendResult sends the result to the parent. If that fails, the loop's own reads and writes fail, too.
func (w *swapper) answer(a *Swapped) {
	b, err := appendJSON(w.out[:0], TypeSwapped, a)
	if err == nil {
		w.out = b
		_ = w.s.write(b)
	}
}

// swapIn loads all stages of a swap, or none. fromFile is the number of stages that were read from files.
func (w *swapper) bring(q *swapJob) (cold int, err error) {
	if w.memory > 0 && w.taken+q.Bytes > w.memory {
		return 0, fmt.Errorf("%w: %d bytes are to be loaded, and %d of %d are taken", ErrMemory, q.Bytes, w.taken, w.memory)
	}
	var list []*stage
	for i := range q.Stages {
		st, warm, err := w.load(q.Stages[i])
		if err != nil {
			for _, st := range list {
				err = errors.Join(err, st.close())
			}
			return 0, err
		}
		if list = append(list, st); !warm {
			cold++
		}
	}
	for _, st := range list {
		w.s.list(st)
	}
	w.taken += q.Bytes
	return cold, nil
}

// loadStage loads a stage and makes it ready. inMemory says that it did not have to be read from its file.
func (w *swapper) load(l Layout) (st *stage, warm bool, err error) {
	m := w.kept[l.ID]
	if m == nil || w.s.stage(l.ID) != nil {
		return nil, false, fmt.Errorf("stage %d was not kept, or is loaded already", l.ID)
	}
	c := w.s.same(&m.spec)
	if warm = c != nil || m.bytes != nil; c == nil {
		sub := m.sub
		if sub.ONNX = m.bytes; !warm {
			cut, err := w.s.loader.Cut(w.ctx, &m.spec)
			if err != nil {
				return nil, false, fmt.Errorf("cut blocks [%d,%d) of %s: %w", m.spec.From, m.spec.To, m.spec.Model, err)
			}
			sub = *cut
		}
		block, err := w.s.loader.Load(w.ctx, &m.spec, &sub)
		if err != nil {
			return nil, false, fmt.Errorf("load blocks [%d,%d) of %s: %w", m.spec.From, m.spec.To, m.spec.Model, err)
		}
		c = &content{spec: contentOf(&m.spec), block: block}
	}
	st = newStage(&m.spec, c)
	if err := w.s.ready(w.ctx, st, l); err != nil {
		return nil, false, errors.Join(err, st.close())
	}
	return st, warm, nil
}

// swapOut frees the stages of a swap.
func (w *swapper) take(q *swapJob) error {
	var errs []error
	if len(q.gone) != len(q.Stages) {
		errs = append(errs, fmt.Errorf("%d of %d stages were not loaded", len(q.Stages)-len(q.gone), len(q.Stages)))
	}
	for _, st := range q.gone {
		errs = append(errs, st.close())
	}
	w.taken = max(0, w.taken-q.Bytes)
	return errors.Join(errs...)
}

// isIdle reports whether no swap is under way. The loop calls it.
func (w *swapper) idle() bool { return w.open.Load() == 0 }

// closeTimeout is the time that a worker waits for a swap before it ends.
const patience = time.Second

// close ends the goroutine. It returns false if a load does not end in time: the memory of the worker then is
// freed with its process.
func (w *swapper) close(alone bool) (whole bool) {
	w.cancel()
	if w.queue == nil {
		return w.forget()
	}
	close(w.queue)
	if alone {
		select {
		case <-w.ended:
		case <-time.After(patience):
			return false
		}
	} else {
		<-w.ended
	}
	return w.forget()
}

// unmapModels unmaps the kept models.
func (w *swapper) forget() bool {
	for _, m := range w.kept {
		if m.bytes != nil {
			_ = unix.Munmap(m.bytes)
		}
	}
	w.kept = nil
	return true
}
