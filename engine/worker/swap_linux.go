package worker

import (
	"cmp"
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
	worker     *server // the worker
	memory     int64   // bytes of the device for swapped stages, 0 without a limit
	ctx        context.Context
	cancel     context.CancelFunc
	queue      chan swapJob
	done       chan struct{} // closed when the goroutine has ended
	unanswered atomic.Int32  // number of swaps that are not answered yet

	// The fields below belong to the goroutine once it runs.
	keptModels map[uint32]*keptModel // models by stage
	takenBytes int64                 // bytes of the device that swapped stages take now
	outFrame   []byte
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
	removedStages []*stage
}

// maxSwaps is the number of swaps that may wait in a worker. A parent sends one at a time.
const maxSwaps = 16

// newSwapper returns a swapper for a worker whose device has memory bytes for swapped stages, 0 without a limit.
func newSwapper(ctx context.Context, s *server, memory int64) *swapper {
	w := &swapper{worker: s, memory: memory, keptModels: map[uint32]*keptModel{}}
	w.ctx, w.cancel = context.WithCancel(ctx)
	return w
}

// keepStage handles a keep frame, in the set-up: it cuts a stage out of its model and stores the result in the
// host's memory whose descriptor came with the frame, or maps there what another worker has cut. The stage can be
// swapped in from there.
func (w *swapper) keepStage(ctx context.Context, p []byte) (*KeptStage, error) {
	request, err := parseJSON[KeepRequest](TypeKeep, p)
	if err != nil {
		return nil, err
	}
	fd := -1
	if request.Size > 0 || request.FreeBytes > 0 {
		if fd, err = w.worker.control.descriptor(TypeKeep); err != nil {
			return nil, err
		}
		defer unix.Close(fd)
	}
	id := request.Stage.ID
	if err := request.Stage.check(); err != nil {
		return nil, err
	}
	if w.keptModels[id] != nil || w.queue != nil {
		return nil, fmt.Errorf("%w: stage %d is kept already, or swaps have begun", ErrProtocol, id)
	}

	// Cut the stage, unless another worker did.
	start, model := monotonic(), &keptModel{spec: request.Stage, sub: request.Submodel}
	if request.Size == 0 {
		sub, err := w.worker.loader.Cut(ctx, &request.Stage)
		if err != nil {
			return nil, fmt.Errorf("cut blocks [%d,%d) of %s: %w", request.Stage.From, request.Stage.To, request.Stage.Model, err)
		}
		model.sub = *sub
		if request.Size, err = storeModel(fd, sub, request.FreeBytes); err != nil {
			return nil, err
		}
		model.sub.ONNX = nil
	}

	// Map the model.
	if request.Size > 0 {
		if model.bytes, err = unix.Mmap(fd, 0, int(request.Size), unix.PROT_READ, unix.MAP_PRIVATE); err != nil {
			return nil, fmt.Errorf("map the model of stage %d (%d bytes): %w", id, request.Size, err)
		}
	}
	w.keptModels[id] = model
	l := LoadedStage{ID: id, Inputs: model.sub.Inputs, Outputs: model.sub.Outputs, WeightBytes: model.sub.WeightBytes, LoadNS: monotonic() - start}
	return &KeptStage{Stage: l, Size: request.Size, Submodel: model.sub}, nil
}

// storeModel writes the model of a submodel into memory of the host (fd) if it fits into freeBytes. It returns the
// model's size, or 0 if it does not fit. If the submodel has no bytes, as in the replay engine, only the memory is
// reserved.
func storeModel(fd int, sub *engine.Submodel, freeBytes int64) (int64, error) {
	size := cmp.Or(int64(len(sub.ONNX)), sub.WeightBytes)
	if fd < 0 || size == 0 || size > freeBytes {
		return 0, nil
	}
	if err := unix.Ftruncate(fd, size); err != nil {
		return 0, fmt.Errorf("memory for the model %s (%d bytes): %w", sub.Model, size, err)
	}
	for written := 0; written < len(sub.ONNX); {
		n, err := unix.Pwrite(fd, sub.ONNX[written:], int64(written))
		if err != nil && err != unix.EINTR {
			return 0, fmt.Errorf("keep the model %s in memory: %w", sub.Model, err)
		}
		written += max(n, 0)
	}
	return size, nil
}

// enqueue handles a swap frame, the parent's command to load stages onto the device or to remove some, on the
// worker's loop. It removes the stages that are to leave the device from the table, and gives the swap to the
// goroutine, which does it and answers.
func (w *swapper) enqueue(p []byte) error {
	swap, err := parseJSON[Swap](TypeSwap, p)
	if err != nil {
		return err
	}
	if err := swap.check(); err != nil {
		return err
	}

	// Start the goroutine at the first swap.
	if w.queue == nil {
		w.queue, w.done = make(chan swapJob, maxSwaps), make(chan struct{})
		go w.runSwaps()
	}
	if w.unanswered.Load() == maxSwaps {
		return fmt.Errorf("%w: more than %d swaps at once", ErrProtocol, maxSwaps)
	}
	w.worker.control.relax() // loading needs the garbage collector

	// Stages that leave the device are removed first, so that no more runs find them.
	job := swapJob{Swap: swap}
	if !swap.ToDevice {
		for i := range swap.Stages {
			id := swap.Stages[i].ID
			if st := w.worker.stages.stage(id); st != nil {
				w.worker.stages.setStage(id, nil)
				job.removedStages = append(job.removedStages, st)
			}
		}
	}
	w.unanswered.Add(1)
	w.queue <- job
	return nil
}

// runSwaps is the goroutine of a worker that does swaps (loads stages onto the device, or removes them) and sends
// their results, one after the other, until the queue is closed.
func (w *swapper) runSwaps() {
	defer close(w.done)
	runtime.LockOSThread()
	if cpus := w.worker.device.CPUs; len(cpus) > 0 {
		// The swaps of a device use no other CPUs than the device. The engine's threads inherit the set.
		if unpin, err := engine.PinThread(cpus...); err == nil {
			defer unpin()
		}
	}
	for job := range w.queue {
		a := SwapResult{ID: job.ID, Start: monotonic()}
		var err error
		if job.ToDevice {
			a.FromFile, err = w.swapIn(&job)
		} else {
			err = w.swapOut(&job)
		}
		if err != nil {
			a.Code, a.Text = codeOf(err), err.Error()
		}
		a.End = monotonic()
		if w.ctx.Err() == nil {
			w.sendResult(&a)
		}
		if w.worker.control.ownsProcess && len(w.queue) == 0 {
			debug.FreeOSMemory() // frees the garbage of loading
		}
		w.unanswered.Add(-1)
	}
}

// sendResult sends the result to the parent. If that fails, the loop's own reads and writes fail, too.
func (w *swapper) sendResult(a *SwapResult) {
	b, err := appendJSON(w.outFrame[:0], TypeSwapped, a)
	if err == nil {
		w.outFrame = b
		_ = w.worker.control.write(b)
	}
}

// swapIn loads all stages of a swap onto the device, or none if one fails or they would exceed the device's memory.
// fromFile is the number of stages that were read from files. w.takenBytes counts the bytes on the device, of at most
// w.memory (0: no limit), by the parent's figures (q.Bytes).
func (w *swapper) swapIn(q *swapJob) (fromFile int, err error) {
	if w.memory > 0 && w.takenBytes+q.Bytes > w.memory {
		return 0, fmt.Errorf("%w: %d bytes are to be loaded, and %d of %d are taken", ErrMemory, q.Bytes, w.takenBytes, w.memory)
	}
	var loaded []*stage
	for i := range q.Stages {
		st, inMemory, err := w.loadStage(q.Stages[i])
		if err != nil {
			for _, st := range loaded {
				err = errors.Join(err, st.close())
			}
			return 0, err
		}
		if loaded = append(loaded, st); !inMemory {
			fromFile++
		}
	}
	for _, st := range loaded {
		w.worker.stages.setStage(st.spec.ID, st)
	}
	w.takenBytes += q.Bytes
	return fromFile, nil
}

// loadStage loads a stage (a range of a model's blocks), which was kept in the host's memory, onto the device and
// makes it ready. l says where its slots lie in shared memory. inMemory says that it did not have to be read from
// its file.
func (w *swapper) loadStage(l Layout) (st *stage, inMemory bool, err error) {
	model := w.keptModels[l.ID]
	if model == nil || w.worker.stages.stage(l.ID) != nil {
		return nil, false, fmt.Errorf("stage %d was not kept, or is loaded already", l.ID)
	}

	// Use the block of another stage if that has loaded the same one. Otherwise load it from the host's memory, or from
	// its file.
	content := w.worker.sharedContent(&model.spec)
	if inMemory = content != nil || model.bytes != nil; content == nil {
		sub := model.sub
		if sub.ONNX = model.bytes; !inMemory {
			submodel, err := w.worker.loader.Cut(w.ctx, &model.spec)
			if err != nil {
				return nil, false, fmt.Errorf("cut blocks [%d,%d) of %s: %w", model.spec.From, model.spec.To, model.spec.Model, err)
			}
			sub = *submodel
		}
		block, err := w.worker.loader.Load(w.ctx, &model.spec, &sub)
		if err != nil {
			return nil, false, fmt.Errorf("load blocks [%d,%d) of %s: %w", model.spec.From, model.spec.To, model.spec.Model, err)
		}
		content = &stageContent{spec: contentOf(&model.spec), block: block}
	}
	st = newStage(&model.spec, content)
	if err := w.worker.makeReady(w.ctx, st, l); err != nil {
		return nil, false, errors.Join(err, st.close())
	}
	return st, inMemory, nil
}

// swapOut frees the stages (ranges of a model's blocks) of a swap, which the loop has removed from the table.
func (w *swapper) swapOut(q *swapJob) error {
	var errs []error
	if len(q.removedStages) != len(q.Stages) {
		errs = append(errs, fmt.Errorf("%d of %d stages were not loaded", len(q.Stages)-len(q.removedStages), len(q.Stages)))
	}
	for _, st := range q.removedStages {
		errs = append(errs, st.close())
	}
	w.takenBytes = max(0, w.takenBytes-q.Bytes)
	return errors.Join(errs...)
}

// isIdle reports whether no swap is under way. The loop calls it.
func (w *swapper) isIdle() bool { return w.unanswered.Load() == 0 }

// closeTimeout is the time that a worker waits for a swap before it ends.
const closeTimeout = time.Second

// close ends the goroutine that does swaps (loading stages onto the device, or removing them), and unmaps the models
// that were kept for them, when the worker ends. If the worker is the only work of its process (ownsProcess), it
// waits for a load under way at most closeTimeout, and otherwise without a limit. It returns false if the load did
// not end in that time: the memory is then freed with the process.
func (w *swapper) close(ownsProcess bool) (complete bool) {
	w.cancel()
	if w.queue == nil {
		return w.unmapModels()
	}
	close(w.queue)
	if ownsProcess {
		select {
		case <-w.done:
		case <-time.After(closeTimeout):
			return false
		}
	} else {
		<-w.done
	}
	return w.unmapModels()
}

// unmapModels unmaps the models that were kept for swaps, when the worker ends. It always returns true, for close.
func (w *swapper) unmapModels() bool {
	for _, m := range w.keptModels {
		if m.bytes != nil {
			_ = unix.Munmap(m.bytes)
		}
	}
	w.keptModels = nil
	return true
}
