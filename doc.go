// Package inferplan is the root of the project. It holds no code: the tool is
// cmd/plan, and each folder's doc.go says what the folder is for.
//
// The folders form a house with few doors, which house_test.go keeps shut:
//
//	cmd        the command line                         may import everything
//	bench      instruments: tables, pictures, GPU check may import everything
//	formats    documents and what is built from them    nothing of ours
//	solver     mathematics                              nothing of ours
//	cputime    CPU time of this process                 nothing of ours
//	engine     what executes models                     formats
//	profiler   engines measured into profiles           engine, formats
//	importers  files of other tools into documents      engine, formats, planner, policy, profiler
//	export     plans into files of other engines        engine, formats
//	policy     decisions at run time                    formats, solver/stoch
//	pages      pages and pictures for people            formats
//	sim        virtual time                             policy, formats
//	planner    documents in, plan out                   solver, sim, policy, formats, cputime
//	executor   wall-clock time                          engine, policy, formats
package inferplan
