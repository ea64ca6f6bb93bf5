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

// room says whether the store has room for what comes. While it has none, requests are
// told to come again, and the front end is not ready.
type room struct {
	full atomic.Bool
	log  rate.Sometimes // one line now and then, however many are refused
}

// fullRetry is when asking again is worth it: somebody has to make room.
const fullRetry = 5 * time.Second

var errFull = &httplimit.Error{Code: httplimit.CodeUnavailable, Reason: "store_full", Msg: "the disk of the requests is full; come again later", RetryAfter: fullRetry}

// noRoom tells whether an error of the store is that its disk is full.
func noRoom(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// took notes what came of a write. True: the store had no room for it.
func (f *Front) took(err error) bool {
	switch {
	case noRoom(err):
		f.room.full.Store(true)
		f.room.log.Do(func() {
			f.opt.Log.Error("the disk of the requests is full: they are refused until there is room", "error", err)
		})
		return true
	case err == nil && f.room.full.CompareAndSwap(true, false):
		f.opt.Log.Info("the disk of the requests has room again")
	}
	return false
}

// Full tells whether the store has no room, and tries where it had none.
func (f *Front) Full() bool {
	if !f.room.full.Load() {
		return false
	}
	ctx, cancel := context.WithTimeout(f.ctx, storeTimeout)
	defer cancel()
	const key = "room"
	err := f.opt.Store.Put(ctx, key, make([]byte, 64<<10))
	if err == nil {
		err = f.opt.Store.Delete(ctx, key)
	}
	f.took(err)
	return err != nil
}
