//! Does the cost of an append grow with the number of commits? Imports one rollout after another into one run, each from
//! a freshly opened lake, and prints time and requests. Processor time is steadier than the clock's on a busy machine.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use rollbook_lake::{Lake, LakeOptions};
use rollbook_query::ingest::{IngestOptions, import};

use crate::yardstick::cpu_seconds;

/// Append one rollout after another to one run, and print what each append cost
#[derive(Debug, Args)]
pub(crate) struct Append {
    /// Lake to make: a folder or an s3 URL; must not exist
    #[arg(long)]
    lake: String,
    /// Imports to make
    #[arg(long, default_value_t = 1000)]
    imports: u32,
    /// Appends that each printed line sums up
    #[arg(long, default_value_t = 10)]
    window: u32,
}

impl Append {
    /// Makes the imports.
    pub(crate) fn run(self) -> Result<(), Box<dyn Error>> {
        tokio::runtime::Runtime::new()?.block_on(self.measure())
    }

    #[expect(clippy::print_stdout, reason = "a benchmark prints its table")]
    async fn measure(self) -> Result<(), Box<dyn Error>> {
        let importer = rollbook_import::importer("tables").ok_or("no importer is called tables")?;
        let source = tempfile::tempdir()?;
        Lake::init(&self.lake, options()).await?;
        println!("imports  ms/append  cpu ms  get  put  list  head");
        let (mut times, mut requests, mut cpu) = (Vec::new(), [0_u64; 4], cpu_seconds());
        for n in 1..=self.imports {
            write_rollout(source.path(), n)?;
            let began = Instant::now();
            let lake = Lake::open(&self.lake, options()).await?;
            let paths = [source.path().to_path_buf()];
            import(&lake, importer, &paths, &IngestOptions::default(), &|_| ()).await?;
            times.push(began.elapsed().as_secs_f64() * 1e3);
            let counts = lake.requests();
            for (sum, count) in requests.iter_mut().zip([counts.get, counts.put, counts.list, counts.head]) {
                *sum += count;
            }
            if n % self.window == 0 {
                times.sort_by(f64::total_cmp);
                let each = requests.map(|sum| u32::try_from(sum).map_or(f64::NAN, f64::from) / f64::from(self.window));
                let median = times[times.len() / 2];
                let spent = (cpu_seconds() - cpu) * 1e3 / f64::from(self.window);
                println!(
                    "{n:>7}  {median:>9.1}  {spent:>6.1}  {:>4.1} {:>4.1} {:>4.1} {:>4.1}",
                    each[0], each[1], each[2], each[3]
                );
                cpu = cpu_seconds();
                times.clear();
                requests = [0; 4];
            }
        }
        Ok(())
    }
}

/// A lake that asks the clock, and the environment for keys.
pub(crate) fn options() -> LakeOptions {
    let env: BTreeMap<String, String> = std::env::vars().filter(|(name, _)| name.starts_with("AWS_")).collect();
    LakeOptions { env, clock: Arc::new(now_us), author: "bench".to_owned() }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark is a program of its own")]
fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// One rollout of two calls at its own step.
fn write_rollout(folder: &Path, n: u32) -> Result<(), Box<dyn Error>> {
    let prompt: Vec<u32> = (0..200).map(|token| token * 7 + n).collect();
    let output: Vec<u32> = (0..50).map(|token| token * 3 + n).collect();
    let next: Vec<u32> = prompt.iter().chain(&output).copied().chain([1, 2, 3]).collect();
    let logprobs = vec![-0.25; output.len()];
    let call = |index: u32, prompt: &[u32]| {
        serde_json::json!({
            "run_id": "bench", "step": n, "group_id": format!("s{n}"), "rollout_id": format!("r{n}"),
            "call_id": format!("r{n}-c{index}"), "call_index": index,
            "parent_call_id": (index > 0).then(|| format!("r{n}-c0")),
            "prompt_token_ids": prompt, "output_token_ids": output, "output_logprobs": logprobs, "policy_version": n,
        })
    };
    let rollout = serde_json::json!({
        "run_id": "bench", "step": n, "group_id": format!("s{n}"), "rollout_id": format!("r{n}"), "status": "completed",
    });
    fs::write(folder.join("runs.jsonl"), "{\"run_id\": \"bench\"}\n")?;
    fs::write(folder.join("rollouts.jsonl"), format!("{rollout}\n"))?;
    fs::write(folder.join("calls.jsonl"), format!("{}\n{}\n", call(0, &prompt), call(1, &next)))?;
    Ok(())
}
