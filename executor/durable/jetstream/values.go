package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"inferplan/executor/durable"
)

// bucketKey returns the key of a value in the bucket. Its prefix keeps it apart from the store's own keys.
func under(key string) string { return "v." + strings.ReplaceAll(key, "/", ".") }

// Put implements durable.Values.
func (s *Store) Put(ctx context.Context, key string, value []byte) error {
	if err := durable.CheckKey(key); err != nil {
		return err
	}
	if len(value) > durable.MaxValue {
		return fmt.Errorf("%s: %d bytes, at most %d: %w", key, len(value), durable.MaxValue, durable.ErrTooLarge)
	}
	sealed, err := s.opt.Sealer.Seal("value/"+key, value)
	if err != nil {
		return err
	}
	return s.again(ctx, func(ctx context.Context) error {
		_, err := s.bucket.Put(ctx, under(key), sealed)
		return err
	})
}

// Value implements durable.Values.
func (s *Store) Value(ctx context.Context, key string) (value []byte, err error) {
	if durable.CheckKey(key) != nil {
		return nil, fmt.Errorf("%.80q: %w", key, durable.ErrNotFound)
	}
	var entry jetstream.KeyValueEntry
	err = s.again(ctx, func(ctx context.Context) (err error) {
		entry, err = s.bucket.Get(ctx, under(key))
		return err
	})
	if missing(err) {
		return nil, fmt.Errorf("%s: %w", key, durable.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	return s.opt.Sealer.Open("value/"+key, entry.Value())
}

// Keys implements durable.Values.
func (s *Store) Keys(ctx context.Context, prefix string) (out []string, err error) {
	// The server filters only by whole parts of a key.
	filter := under("")
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		filter = under(prefix[:i+1])
	}
	err = s.again(ctx, func(ctx context.Context) error {
		list, err := s.bucket.ListKeysFiltered(ctx, filter+">")
		if err != nil {
			return err
		}
		out = out[:0]
		for key := range list.Keys() {
			key = strings.ReplaceAll(strings.TrimPrefix(key, "v."), ".", "/")
			if strings.HasPrefix(key, prefix) {
				out = append(out, key)
			}
		}
		return ctx.Err() // otherwise the list is complete
	})
	if missing(err) {
		return nil, nil
	}
	slices.Sort(out)
	return out, err
}

// Delete implements durable.Values.
func (s *Store) Delete(ctx context.Context, key string) error {
	if durable.CheckKey(key) != nil {
		return nil
	}
	err := s.again(ctx, func(ctx context.Context) error { return s.bucket.Purge(ctx, under(key)) })
	if missing(err) {
		return nil
	}
	return err
}

// listingTimeout is the wait after which a listing of the ended records counts as complete.
const quietFor = 500 * time.Millisecond

// Expire implements durable.Store.
func (s *Store) Expire(ctx context.Context, now time.Time, keep func(class string) time.Duration) (int, error) {
	if s.ctx.Err() != nil {
		return 0, durable.ErrClosed
	}
	info, err := s.stream.Info(ctx, jetstream.WithSubjectFilter(s.subject("due", "*")))
	if err != nil {
		return 0, fmt.Errorf("ended requests: %w", err)
	}
	left := len(info.State.Subjects)
	if left == 0 {
		return 0, nil
	}
	ended, err := s.js.OrderedConsumer(ctx, s.opt.Name, jetstream.OrderedConsumerConfig{FilterSubjects: []string{s.subject("due", "*")}, HeadersOnly: true})
	if err != nil {
		return 0, fmt.Errorf("ended requests: %w", err)
	}
	n := 0

	// Read the list of ended records in batches.
	for left > 0 {
		batch, err := ended.Fetch(min(left, 500), jetstream.FetchMaxWait(quietFor))
		if err != nil {
			return n, fmt.Errorf("ended requests: %w", err)
		}
		got := 0
		for m := range batch.Messages() {
			got++
			gone, err := s.expire(ctx, m, now, keep)
			if err != nil {
				return n, err
			}
			n += gone
		}
		if left -= got; got == 0 {
			break
		}
	}
	return n, nil
}

// expireRecord deletes a record if its retention has ended, and returns the number deleted. The message that lists it
// is deleted last, so that an interrupted deletion is repeated.
func (s *Store) expire(ctx context.Context, m jetstream.Msg, now time.Time, keep func(class string) time.Duration) (int, error) {
	class, err := strconv.Unquote(m.Headers().Get(headerClass))
	nanos, e := strconv.ParseInt(m.Headers().Get(headerEnded), 10, 64)
	if err = errors.Join(err, e); err != nil {
		s.refuse("the time of an end", fmt.Errorf("%s: %w: %w", m.Subject(), errForm, err))
		return 0, nil
	}
	if now.Sub(time.Unix(0, nanos)) < keep(class) {
		return 0, nil
	}
	id := m.Subject()[strings.LastIndexByte(m.Subject(), '.')+1:]
	for _, kind := range []string{"state", "req", "due"} {
		err := s.again(ctx, func(ctx context.Context) error {
			return s.stream.Purge(ctx, jetstream.WithPurgeSubject(s.subject(kind, id)))
		})
		if err != nil {
			return 0, err
		}
	}
	return 1, nil
}
