package completions

import (
	"context"
	"errors"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"inferplan/executor/httplimit"
)

// storeSpace says whether the disk of the store is full. While it is, new requests are refused for a while, and the
// front end is not ready.
type storeSpace struct {
	diskFull atomic.Bool
	log      rate.Sometimes // one line a minute, however many requests are refused
}

// storeFullRetryAfter is the time that clients are told to wait: somebody has to free space first.
const storeFullRetryAfter = 5 * time.Second

var errStoreFull = &httplimit.Error{Code: httplimit.CodeUnavailable, Reason: "store_full", Msg: "the disk of the requests is full; come again later", RetryAfter: storeFullRetryAfter}

// isDiskFull reports whether an error of the store says that its disk is full.
func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// noteWriteResult is called with the error of each write to the store. It returns true if the write failed because the
// disk is full; new requests are then refused. The first write that succeeds again ends this. Both are logged.
func (f *Front) noteWriteResult(err error) bool {
	switch {
	case isDiskFull(err):
		f.space.diskFull.Store(true)
		f.space.log.Do(func() {
			f.opt.Log.Error("the disk of the requests is full: they are refused until there is room", "error", err)
		})
		return true
	case err == nil && f.space.diskFull.CompareAndSwap(true, false):
		f.opt.Log.Info("the disk of the requests has room again")
	}
	return false
}

// StoreFull returns true if the store's disk is full. If the last write found it full, StoreFull writes and deletes a
// value of 64 KiB to see whether it still is.
func (f *Front) StoreFull() bool {
	if !f.space.diskFull.Load() {
		return false
	}
	ctx, cancel := context.WithTimeout(f.ctx, storeTimeout)
	defer cancel()
	const key = "room"
	err := f.opt.Store.Put(ctx, key, make([]byte, 64<<10))
	if err == nil {
		err = f.opt.Store.Delete(ctx, key)
	}
	f.noteWriteResult(err)
	return err != nil
}
