//! One error type at the edge, in the reader's language.

use evidence::Language;
pub use protocol::{ErrorCode, ErrorReport};

/// The error as a reader is told it. In Chinese what happened and what to do follow from the code; where, and with what, the
/// program's own words tell beside it. One that is told so already stays as it is.
pub fn in_language(report: ErrorReport, language: Language) -> ErrorReport {
    match chinese(report.code) {
        Some((message, hint)) if language == Language::Zh && report.detail.is_empty() => ErrorReport {
            code: report.code,
            message: message.to_owned(),
            hint: hint.to_owned(),
            detail: report.message,
        },
        _ => report,
    }
}

/// What happened and what to do; none for a code that this program does not know.
fn chinese(code: ErrorCode) -> Option<(&'static str, &'static str)> {
    use ErrorCode as Code;
    const FAULT: &str = "这是程序的错误：请附上此前的操作反馈";
    Some(match code {
        Code::PackNotFound => ("找不到模型包", "请指定含有 pack.json 的文件夹"),
        Code::PackMalformed => ("模型包的清单无法使用", "请更正 pack.json"),
        Code::PartNotFound => ("清单指明的文件夹不存在", "请更正 pack.json 中的路径"),
        Code::PartMissing => {
            ("清单没有指明实验臂所需的部分", "请在 pack.json 中补上这一部分，或去掉该实验臂")
        }
        Code::FileUnreadable => ("模型包中的文件缺失或无法读取", "请检查模型包是否完整、可读"),
        Code::WeightsDamaged => (
            "权重文件损坏、不完整，或不属于这个模型",
            "请重新下载该文件（若是 Git LFS 指针，用 git lfs pull 取回），或换用与 config.json 相配的权重",
        ),
        Code::DigestMismatch => {
            ("文件的摘要与清单不符", "请重新下载该文件；若是有意更改，请更正 pack.json 中的 sha256")
        }
        Code::ConfigUnsupported => {
            ("配置缺少必需的项，或要求了不支持的功能", "请更正该文件，或换用本程序支持的模型")
        }
        Code::DimensionMismatch => ("模型包的各部分彼此不匹配", "请使用为此验证模型制作的草稿模型和 f_θ"),
        Code::Tokenizer => ("分词器或聊天模板无法使用", "请检查验证模型文件夹中的分词器文件"),
        Code::TrialMalformed => ("试验的设置不成立", "请更正运行设置"),
        Code::DeviceUnusable => {
            ("本程序或本机无法在所选设备上计算", "请换用其他设备或张量库，或使用为该设备构建的程序")
        }
        Code::Tensor => ("张量运算失败", "这可能是程序的错误：请附上这条消息反馈"),
        Code::TrialCancelled => ("试验已取消", "请重新开始这次试验"),

        Code::RequestMalformed => ("引擎收到无法理解的请求", "主程序与引擎的版本可能不同：请使用同一版本"),
        Code::HelloMissing => ("与引擎的对话没有以 hello 开始", "请先发送 hello"),
        Code::ProtocolVersion => ("主程序与引擎使用不同的协议", "请使用同一版本的主程序和引擎"),
        Code::PackNotLoaded => ("引擎尚未加载模型包", "请先发送 load"),
        Code::EngineNotFound => ("找不到引擎程序", "请用 KAKEYA_GATE_PROGRAM 指定程序 kakeya-gate"),
        Code::EngineNotStarted => {
            ("引擎无法启动", "请构建或安装程序 kakeya-gate，或用 KAKEYA_GATE_PROGRAM 指定它")
        }
        Code::EngineLost => ("引擎进程意外结束或不再应答", "请重新开始运行；若在同一处再次崩溃，请反馈"),
        Code::EngineGarbled => ("引擎发来无法理解的内容", "请使用与本程序同一版本的引擎"),
        Code::Engine => ("引擎无法读取请求或写出应答", "请通过本应用或 `kakeya-gate run` 启动引擎"),

        Code::BadSpec => ("运行设置不成立", "请更正设置后重新开始"),
        Code::BadSpecFile => (
            "文件中没有可用的运行设置",
            "请指定一个可读的 JSON 文件：一个对象，含 arms、ladder、n_samples 等设置",
        ),
        Code::File => ("无法读取或写入文件", "请检查文件和文件夹的权限以及剩余空间"),
        Code::DiskFull => {
            ("磁盘已满，日志库无法写入", "请腾出一些空间，然后继续这次运行；已完成的部分不会丢失")
        }
        Code::Journal => ("日志库无法使用", "请检查数据文件夹的权限，或用 KAKEYA_GATE_DATA 指定另一个"),
        Code::NoRun => ("日志库中没有这次运行", "请重新查看运行列表：它可能已被放弃"),
        Code::RunBusy => ("另一个进程正在进行这次运行", "请等它结束，或在启动它的地方停止它"),
        Code::RunIncomplete => ("有些试验没有得到回答", "请继续这次运行"),
        Code::Paused => ("已在样本完成后暂停；已开始的部分都会保留", "方便时可以继续这次运行"),
        Code::Cancelled => ("已取消；已完成的部分会保留", "方便时可以继续这次运行"),
        Code::Queue => ("队列无法使用", "请检查服务器是否启用了 JetStream，以及地址和凭据；然后继续这次运行"),
        Code::DeadLetters => {
            ("队列放弃了一些试验，没有机器能够回答", "请查看各台机器的日志，然后继续这次运行")
        }
        Code::PackNotThere => {
            ("运行所在的机器上没有所需的模型包", "请把模型包复制到那边的模型包文件夹：模型包不会自动传送")
        }
        Code::Shards => ("这些分片拼不成一次运行", "请给出同一次运行的全部分片，每片一次"),

        Code::BadTarget => ("主机的写法不正确", "请填写 host、user@host，或 ssh 配置中的别名"),
        Code::NoTarget => ("没有这台机器", "请查看已添加的机器"),
        Code::Ssh => ("ssh 无法使用", "请安装 OpenSSH 客户端，并检查数据文件夹"),
        Code::SshNotPinned => ("主机密钥尚未固定", "请先添加这台机器，并与其所有者核对指纹"),
        Code::SshWrongKey => {
            ("主机出示的密钥与固定的不同", "可能有人在窃听；只有确知密钥已更换时，才移除这台机器并重新添加")
        }
        Code::SshDenied => {
            ("主机拒绝登录", "请先用 `ssh HOST` 登录一次；这里无法输入口令，密钥需由代理提供或不设口令")
        }
        Code::SshUnreachable => ("无法连接主机", "请检查名称、网络和 `ssh HOST`；那边的运行此间仍在继续"),
        Code::WorkerMissing => ("那台机器上没有本程序", "请把本程序复制过去，或指明那边的程序"),
        Code::WorkerVersion => ("那台机器上的程序是另一个版本", "请把本程序复制过去，或指明那边的程序"),
        Code::WorkerDamaged => ("传送的内容没有完整到达", "请重试；若再次出现，那边的磁盘可能已满"),
        Code::WorkerSystem => ("程序不适用于那台机器的系统", "请在那边安装为该系统构建的程序，并指明它"),

        Code::NoSuchCheck => ("没有这项检查", "请运行全部检查；每项都有其标识"),
        Code::NoSuchFix => ("这项检查没有自动修复", "请按检查的提示手动处理"),
        Code::FixUnrecognised => ("文件的形式不是此修复所认识的", "请手动更正该文件"),
        Code::FixOutside => {
            ("文件位于模型包之外，修复不会写入那里", "请在原处修复该文件，或把它复制到模型包中")
        }
        Code::FixReadOnly => ("文件夹是只读的", "请使其可写，或复制一份模型包"),
        Code::FixBackup => ("先前修复的备份还在，而文件此后又有更改", "请移走备份，然后再次修复"),
        Code::FixCommand => ("修复所用的命令没有成功", "请在终端中运行该命令，看它说明了什么"),
        Code::UndoNoBackup => ("没有可以恢复的备份", "这里没有修复过，或已经撤销"),
        Code::UndoChanged => ("文件在修复之后又有更改", "请比较两者，手动恢复所需的部分"),

        Code::NoEvidence => ("没有找到证据文件", "请给出证据文件，或含有证据的文件夹"),
        Code::NoSuchEvidence => ("该路径不是证据文件", "请重新打开它"),
        Code::UnreadableEvidence => ("证据文件无法读取", "请检查路径及其权限"),
        Code::EmptyEvidence => ("证据文件是空的", "请移除它，或从写出它的地方重新复制"),
        Code::DamagedEvidence => ("证据文件已损坏：不是有效的 JSON", "请从写出它的地方重新复制"),
        Code::NotEvidence => ("文件不是证据", "请选择由运行写出的文件"),
        Code::EvidenceChanged => ("文件在读取列表之后有更改", "请重新读取列表"),
        Code::NoNeedles => {
            ("没有文件含有可以重新生成提示词的大海捞针证据", "请给出大海捞针运行的文件，或种子和梯级")
        }
        Code::NoArm => ("没有文件含有这个实验臂", "请从文件所含的实验臂中选择"),
        Code::NoSample => ("数据集中没有这个样本", "请从列表中选择"),
        Code::Dataset => ("这些设置生成不了数据集", "请给出能够生成数据集的梯级或行数范围"),
        Code::Policy => ("判定标准无法读取", "请更正该文件；不指定文件则使用内置的判定标准"),
        Code::Report => ("无法生成报告", "这是程序的错误：请附上这条消息反馈"),
        Code::NoChineseFont => (
            "没有能显示中文报告的字体",
            "请安装中文字体（如 Noto Sans CJK），或选择 HTML：它使用读者自己的字体",
        ),
        Code::UnknownFormat => ("文件名的后缀不对应任何格式", "请使用 .html、.pdf、.md、.xml 或 .json"),
        Code::Content => ("要保存的内容无法读取", FAULT),

        Code::NoWorkspace => ("工作区文件夹不存在", "请选择一个存在的文件夹"),
        Code::NotWatched => {
            ("无法监视工作区的更改", "更改之后请手动重新读取；许多系统限制可监视的文件夹数量")
        }
        Code::Demo => ("无法建立演示工作区", "请使数据文件夹可写，或用 KAKEYA_GATE_DATA 指定另一个"),
        Code::NoDataFolder => ("系统没有指明数据文件夹", "请用 KAKEYA_GATE_DATA 指定一个"),
        Code::Answer => ("无法写出应答", FAULT),
        Code::Panicked => ("程序意外中断", FAULT),

        Code::Output => ("无法写出结果", "请检查标准输出的去向"),
        Code::Signal => ("无法接收 Ctrl-C", "请从普通终端启动程序"),
        Code::NoGoldens => ("没有指定参考输出的文件夹", "请加上 --golden DIR"),
        Code::NoPages => {
            ("此程序构建时没有包含页面", "请先构建页面（npm --prefix ui run build），再重新构建程序")
        }
        Code::Serve => ("无法提供页面", "请选择另一个端口；省略 --port 则使用空闲端口"),

        Code::AddressUsed => ("这个地址已被使用", "请打开程序最近打印的地址"),
        Code::NoFeed => ("此页面已不再接收消息", "请重新加载页面"),
        Code::NotSignedIn => ("此页面未登录", "请打开程序最近打印的地址"),
        Code::NoRandomNumbers => ("系统没有提供随机数", "请重新启动程序"),
        Code::Gone => ("程序不再应答", "请重新启动程序"),
        Code::Menu => ("无法显示菜单", "所有命令也都在命令面板中"),
        Code::Ladder => ("梯级不是整数列表", "例如：20, 70"),
        Code::Sweep => ("α 扫描不是 0 到 1 的权重列表", "例如：0, 0.5, 1"),
        Code::Number => ("有字段为空或不是整数", "请填写每个数字"),
        Code::Unexpected => ("页面意外出错", "请重试；如果再次出现，请附上这条消息反馈"),

        Code::Unknown => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_that_is_known_is_told_in_chinese() {
        let is_chinese = |text: &str| text.chars().any(|c| ('\u{4e00}'..='\u{9fff}').contains(&c));
        for code in ErrorCode::ALL {
            let report = ErrorReport::new(*code, "what", "do");
            assert_eq!(in_language(report.clone(), Language::En), report);
            let told = in_language(report.clone(), Language::Zh);
            match code {
                ErrorCode::Unknown => assert_eq!(told, report),
                _ => assert!(is_chinese(&told.message) && is_chinese(&told.hint), "{code}"),
            }
            assert_eq!(told.detail.is_empty(), *code == ErrorCode::Unknown);
            assert_eq!(in_language(told.clone(), Language::Zh), told);
        }
    }
}
