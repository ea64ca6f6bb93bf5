package formats

import (
	"io"
	"time"

	"inferplan/formats/document"
)

// What users of documents need of package document.
type (
	// Error is one finding about a document.
	Error = document.Error
	// Errors is several findings about one document.
	Errors = document.Errors
	// ExistsError tells that a file is there already, with other content.
	ExistsError = document.ExistsError
	// WriteOption changes how WriteFile and WriteBytes treat what is there.
	WriteOption = document.WriteOption

	// Micros is a time that documents have in microseconds.
	Micros = document.Micros
	// Duration is a time that people write with its unit.
	Duration = document.Duration
	// SLO is a latency target.
	SLO = document.SLO
	// Bytes is a size.
	Bytes = document.Bytes

	// Option describes one choice that a kind of plan offers.
	Option = document.Option
	// OptionType says what values an option takes.
	OptionType = document.OptionType
	// Values are the options of a kind with what was chosen for them.
	Values = document.Values
)

// Types of options.
const (
	FlagOption     = document.FlagOption
	WholeOption    = document.WholeOption
	NumberOption   = document.NumberOption
	ChoiceOption   = document.ChoiceOption
	DurationOption = document.DurationOption
	SLOOption      = document.SLOOption
	TextOption     = document.TextOption
)

// DefaultMaxDocument is the largest file that is read where SetMaxDocument has said nothing else.
const DefaultMaxDocument = document.DefaultMaxDocument

// SetMaxDocument sets the largest file that ReadPlan and its kin read, in bytes.
func SetMaxDocument(n int64) { document.SetMaxDocument(n) }

// Findings lists the findings inside err; nil if it holds none.
func Findings(err error) []*Error { return document.Findings(err) }

// DidYouMean is a hint at the candidate that s was probably meant to be, or "".
func DidYouMean(s string, candidates []string) string { return document.DidYouMean(s, candidates) }

// Nearest returns the candidate that s was probably meant to be, or "".
func Nearest(s string, candidates []string) string { return document.Nearest(s, candidates) }

// NewValues returns options that all have their defaults.
func NewValues(options []Option) Values { return document.NewValues(options) }

// ParseMicros reads a number of microseconds with at most three decimals.
func ParseMicros(text string) (Micros, error) { return document.ParseMicros(text) }

// ParseSeconds reads a number of seconds with at most nine decimals.
func ParseSeconds(text string) (time.Duration, error) { return document.ParseSeconds(text) }

// ParseSLO reads a latency target, such as 200ms or 5x.
func ParseSLO(text string) (SLO, error) { return document.ParseSLO(text) }

// ParseDuration reads a time with its unit.
func ParseDuration(text string) (Duration, error) { return document.ParseDuration(text) }

// ParseBytes reads a size, such as 24GiB.
func ParseBytes(text string) (Bytes, error) { return document.ParseBytes(text) }

// ParsePercentile reads "p99" or "p99.9" as 0.99 or 0.999.
func ParsePercentile(text string) (float64, error) { return document.ParsePercentile(text) }

// ShareAt returns the share of requests that a percentile wants in time: .99 where there is none.
func ShareAt(percentile string) float64 { return document.ShareAt(percentile) }

// PercentileName writes what ParsePercentile reads.
func PercentileName(share float64) string { return document.PercentileName(share) }

// Marshal writes a value as the JSON that files hold.
func Marshal(doc any) ([]byte, error) { return document.Marshal(doc) }

// Force lets a file that differs be replaced when on.
func Force(on bool) WriteOption { return document.Force(on) }

// Write validates the document and writes it.
func Write(w io.Writer, doc any) error { return document.Write(w, doc) }

// WriteFile validates the document and writes it to path whole or not at all.
func WriteFile(path string, doc any, opts ...WriteOption) (changed bool, err error) {
	return document.WriteFile(path, doc, opts...)
}

// WriteBytes writes a file under the rules of WriteFile.
func WriteBytes(path string, data []byte, opts ...WriteOption) (changed bool, err error) {
	return document.WriteBytes(path, data, opts...)
}

// Digest returns the SHA-256 of a file's bytes in hexadecimal.
func Digest(path string) (string, error) { return document.Digest(path) }
