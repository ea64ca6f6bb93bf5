package kind

import (
	"inferplan/formats"
	"inferplan/formats/document"
)

// Observed is a deployment that runs and was not planned, as an importer read it: models on devices, or servers of
// language models.
type Observed struct {
	Deployment []formats.Deployed // with places and batch sizes alone
	Servers    []Server
}

// Server is a server of language models that runs. Of its instance the importer read the devices, the models with their
// sequences, the token budget and what its own queue does.
type Server struct {
	formats.QueueInstance
	Label         string  // its object and file, for messages
	ContextTokens int     // most tokens of a prompt and its answer; 0 if its options set none
	KVTokens      int64   // KV capacity that its options set; 0 if they set none
	KVBytes       int64   // the same in bytes per device
	MemoryShare   float64 // most of each device's memory that weights and KV take, from 0 to 1; 0 if not known
	// OptionError returns an error at the place of the options of the server. If it is nil, errors name the label.
	OptionError func(found, expected, hint string) error
}

// Fail returns an error about the options of the server.
func (s *Server) Fail(found, expected, hint string) error {
	if s.OptionError == nil {
		return &document.Error{File: s.Label, Found: found, Expected: expected, Hint: hint}
	}
	return s.OptionError(found, expected, hint)
}
