fn load(n: usize) -> Vec<u32> {
    let table = vec![1u32, 2, 3];
    vec![table[n]]
}

fn main() {
    println!("tokenizer: loading");
    println!("{:?}", load(std::env::args().count() + 6));
}
