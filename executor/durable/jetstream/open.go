package jetstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/time/rate"

	"inferplan/executor/durable"
)

// Options say how a cluster is used. The zero value of a field means what its comment says.
type Options struct {
	// Name is that of the stream and the bucket; processes with the same one share the
	// store. Empty: "inferplan".
	Name string
	// Replicas is on how many nodes everything is; 0: 3. It counts when the stream is made.
	Replicas int
	// AckWait is after how long without a word a holder is taken to be gone; 0: 30 s.
	AckWait time.Duration
	Sealer  *durable.Sealer // nil: what is stored can be read by whoever may read the stream
	Connect []nats.Option   // credentials, TLS
	Log     *slog.Logger    // nil: slog.Default
}

// Store is a durable.Store in a cluster.
type Store struct {
	link
	beating sync.WaitGroup

	mu   sync.Mutex
	held map[string]*holding
}

// link is the way to the cluster, and what is there.
type link struct {
	opt    Options
	conn   *nats.Conn
	js     jetstream.JetStream
	leader nats.JetStreamContext // reads at the stream's leader, which lacks nothing
	stream jetstream.Stream
	serve  jetstream.Consumer
	bucket jetstream.KeyValue
	page   int             // messages that are asked for at once
	odd    rate.Sometimes  // tells of messages that are none of ours
	others atomic.Uint64   // so many
	ctx    context.Context // ends with Close
	stop   context.CancelFunc
}

// openWait is how long a cluster may take to be there.
const openWait = 30 * time.Second

// Open connects to the servers of a URL such as nats://a:4222,nats://b:4222, and makes
// stream, consumer and bucket where they are not there.
func Open(ctx context.Context, url string, opt Options) (*Store, error) {
	set(&opt.Name, "inferplan")
	set(&opt.Replicas, 3)
	set(&opt.AckWait, 30*time.Second)
	if opt.Log == nil {
		opt.Log = slog.Default()
	}
	if err := (&durable.Record{ID: opt.Name}).Check(); err != nil {
		return nil, fmt.Errorf("name of the stream: %w", err)
	}
	conn, err := nats.Connect(url, append([]nats.Option{nats.Name("inferplan"), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(200 * time.Millisecond)}, opt.Connect...)...)
	if err != nil {
		return nil, fmt.Errorf("queue %s: %w", url, err)
	}
	s := &Store{link: link{opt: opt, conn: conn, page: 1000, odd: rate.Sometimes{First: 3, Interval: 10 * time.Second}}, held: map[string]*holding{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	ctx, cancel := context.WithTimeout(ctx, openWait)
	defer cancel()
	if err := s.open(ctx); err != nil {
		s.stop()
		conn.Close()
		return nil, fmt.Errorf("queue %s: %w", url, err)
	}
	s.beating.Go(s.beat)
	return s, nil
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (s *link) open(ctx context.Context) (err error) {
	if s.js, err = jetstream.New(s.conn); err != nil {
		return err
	}
	if s.leader, err = s.conn.JetStream(); err != nil {
		return err
	}
	// A cluster that has just started has no leader yet.
	for {
		if err = s.make(ctx); err == nil || ctx.Err() != nil || errors.Is(err, durable.ErrKey) {
			return err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

func (s *link) make(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	name := s.opt.Name
	s.stream, err = s.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{name + ".req.*", name + ".state.*", name + ".due.*"},
		Storage: jetstream.FileStorage, Replicas: s.opt.Replicas, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew, Duplicates: 2 * time.Minute,
		AllowDirect: true, RePublish: &jetstream.RePublish{Source: s.subject("state", "*"), Destination: s.news("{{wildcard(1)}}")},
	})
	if err != nil {
		return fmt.Errorf("stream %s: %w", name, err)
	}
	s.serve, err = s.stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "serve", FilterSubject: name + ".req.*", DeliverPolicy: jetstream.DeliverAllPolicy, AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: s.opt.AckWait, MaxDeliver: -1, MaxAckPending: -1,
	})
	if err != nil {
		return fmt.Errorf("consumer of %s: %w", name, err)
	}
	s.bucket, err = s.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: name, Storage: jetstream.FileStorage, Replicas: s.opt.Replicas, History: 1})
	if err != nil {
		return fmt.Errorf("bucket %s: %w", name, err)
	}
	return s.checkKey(ctx)
}

// checkKey says whether the store's key is ours; a new store gets it.
func (s *link) checkKey(ctx context.Context) error {
	const key = "check"
	sealed, err := s.opt.Sealer.Seal(key, []byte("inferplan 1"))
	if err != nil {
		return err
	}
	if _, err = s.bucket.Create(ctx, key, sealed); err == nil || !errors.Is(err, jetstream.ErrKeyExists) {
		return err
	}
	entry, err := s.bucket.Get(ctx, key)
	if err != nil {
		return err
	}
	plain, err := s.opt.Sealer.Open(key, entry.Value())
	if err == nil && string(plain) != "inferplan 1" {
		err = fmt.Errorf("%s: %w", key, durable.ErrKey)
	}
	return err
}

// Close gives back what is held and ends the connection.
func (s *Store) Close() error {
	s.stop()
	s.beating.Wait()
	s.mu.Lock()
	held := make([]*holding, 0, len(s.held))
	for _, h := range s.held {
		held = append(held, h)
	}
	s.held = map[string]*holding{}
	s.mu.Unlock()
	slices.SortFunc(held, func(a, b *holding) int { return int(a.seq) - int(b.seq) })
	var err error
	for _, h := range held {
		err = errors.Join(err, s.signal(h, signalBack))
	}
	if !s.conn.IsClosed() {
		err = errors.Join(err, s.conn.FlushTimeout(5*time.Second))
	}
	s.conn.Close()
	return err
}

// tryFor is how long a call is tried again while the cluster has no leader.
const tryFor = 30 * time.Second

// again calls until there is an answer: what is not there, or not as expected, is one.
func (s *link) again(ctx context.Context, call func(ctx context.Context) error) error {
	if s.ctx.Err() != nil {
		return durable.ErrClosed
	}
	ctx, cancel := context.WithTimeout(ctx, tryFor)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		once, done := context.WithTimeout(ctx, 3*time.Second)
		err := call(once)
		done()
		if err == nil || final(err) {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			if s.ctx.Err() != nil {
				return durable.ErrClosed
			}
			return errors.Join(err, ctx.Err())
		}
	}
}

// final says that trying again gives the same answer.
func final(err error) bool {
	if moved(err) || missing(err) || errors.Is(err, jetstream.ErrInvalidKey) {
		return true
	}
	for _, e := range []error{nats.ErrMaxPayload, jetstream.ErrStreamMessageExceedsMaximum, durable.ErrKey, durable.ErrFinished, durable.ErrMoved, durable.ErrNotFound} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// moved says that another message came under the subject meanwhile.
func moved(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

func missing(err error) bool {
	return errors.Is(err, nats.ErrMsgNotFound) || errors.Is(err, jetstream.ErrMsgNotFound) || errors.Is(err, jetstream.ErrKeyNotFound) || errors.Is(err, jetstream.ErrKeyDeleted) || errors.Is(err, jetstream.ErrNoKeysFound)
}
