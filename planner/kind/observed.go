package kind

import "inferplan/formats"

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
}
